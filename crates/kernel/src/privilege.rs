//! Capabilities that loading a congestion control requires.

use std::fs;

/// Bit numbers of capabilities(7).
const NET_ADMIN: u32 = 12;
const SYS_ADMIN: u32 = 21;
const PERFMON: u32 = 38;
const BPF: u32 = 39;

/// Whether this process has the capabilities, at least in its own user namespace. Whether they are valid on the host
/// is known only when the kernel is asked to load a module.
pub(crate) fn may_load() -> bool {
    fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| effective(&status))
        .is_some_and(suffices)
}

fn effective(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

fn suffices(capabilities: u64) -> bool {
    let has = |bit: u32| capabilities & (1 << bit) != 0;
    has(NET_ADMIN) && (has(SYS_ADMIN) || (has(BPF) && has(PERFMON)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read_and_weighed() {
        let of = |text: &str| effective(&format!("Name:\tx\nCapEff:\t{text}\n")).map(suffices);
        assert_eq!(of("000001ffffffffff"), Some(true));
        assert_eq!(of("0000000000000000"), Some(false));
        // CAP_NET_ADMIN alone, then with CAP_BPF and CAP_PERFMON.
        assert_eq!(of("0000000000001000"), Some(false));
        assert_eq!(of("000000c000001000"), Some(true));
        assert_eq!(effective("Name:\tx\n"), None);
    }
}
