//! Kernel's packet counters of a device, from /proc/net/dev.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::setup::NAME;
use crate::error::{Context, HostError};

/// Packet counters of a device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeviceCount {
    /// Packets received by the namespace.
    pub received: u64,
    /// Packets sent by the namespace and read from the device.
    pub sent: u64,
    /// Packets that the namespace sent and the device dropped.
    pub send_drops: u64,
}

/// Table of the devices of one namespace: its /proc/net/dev.
#[derive(Debug)]
pub(super) struct NamespaceTable {
    file: File,
}

impl NamespaceTable {
    /// Open the table of the calling thread's namespace; it can be read from any thread.
    pub(super) fn open() -> Result<Self, HostError> {
        let file = File::open("/proc/thread-self/net/dev")
            .context("cannot open /proc/thread-self/net/dev")?;
        Ok(Self { file })
    }

    /// Read the counters of the namespace's device.
    pub(super) fn read(&self) -> Result<DeviceCount, HostError> {
        let mut text = [0; 4096];
        let length =
            self.file.read_at(&mut text, 0).context("cannot read the device's counters")?;
        let text = String::from_utf8_lossy(&text[..length]);
        parse(&text).ok_or_else(|| HostError::System {
            action: "cannot read the device's counters".to_owned(),
            reason: format!("/proc/net/dev does not list {NAME} as expected"),
        })
    }
}

/// Parse the device's line: 8 columns for receiving (bytes, packets, errs, drop, …), then 8 for sending.
fn parse(table: &str) -> Option<DeviceCount> {
    let line = table.lines().find_map(|line| line.trim().strip_prefix(NAME)?.strip_prefix(':'))?;
    let columns: Vec<u64> =
        line.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    let (received, sent, send_drops) = (*columns.get(1)?, *columns.get(9)?, *columns.get(11)?);
    Some(DeviceCount { received, sent, send_drops })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_from_the_devices_own_line() {
        let table = "Inter-|   Receive     |  Transmit\n face |bytes packets errs …\n    \
                     lo:  1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n\
                     skyhop0: 100 20 0 1 0 0 0 0 300 40 0 5 0 0 0 0\n";
        let expected = DeviceCount { received: 20, sent: 40, send_drops: 5 };
        assert_eq!(parse(table), Some(expected));
        assert_eq!(parse("skyhop0: 1 2"), None);
    }
}
