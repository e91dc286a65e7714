//! What congestion controls there are.

use std::{fs, process};

use nix::time::{ClockId, clock_gettime};
use skyhop_cc::Module;
use skyhop_model::OUR_CC;

use crate::bpf;
use crate::census::sockets_by_cc;
use crate::error::{Context, KernelError};
use crate::names::{PREFIX, held_module, held_name, held_part, is_called, kernel_ships};
use crate::pins::Pin;

const OFFERED: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

/// A congestion control.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// What programs call it; `skyhop:NAME` for one of ours that is not in the kernel.
    pub name: String,
    /// Whose it is, and whether it is loaded.
    pub status: Status,
    /// Ours, from `cc/`: one line about it.
    pub about: Option<&'static str>,
    /// Sockets that use it in the namespaces that the caller can see; `None` where the kernel does not
    /// say, or it is not in the kernel.
    pub sockets: Option<u64>,
}

/// Whose a congestion control is, and whether it is loaded. `None` for a module's name is a file of somebody's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The kernel's own.
    Kernel,
    /// Ours, loaded until it is unloaded.
    Loaded(Option<&'static str>),
    /// Ours, held by a live run until that ends.
    Run(Option<&'static str>),
    /// Somebody's who has registered it through BPF and holds it, as `skyhop policy serve`; only root is told.
    Program,
    /// Ours, not in the kernel.
    Module(&'static str),
}

/// The names that this kernel offers; algorithms in kernel modules that are not loaded are left out.
///
/// # Errors
/// The kernel does not say.
pub fn offered() -> Result<Vec<String>, KernelError> {
    let names = fs::read_to_string(OFFERED).context(&format!("cannot read {OFFERED}"))?;
    Ok(names.split_whitespace().map(str::to_owned).collect())
}

/// All congestion controls: those in the kernel, then ours that are not.
///
/// # Errors
/// The kernel does not say.
pub fn list() -> Result<Vec<Entry>, KernelError> {
    let pins = Pin::all();
    let census = sockets_by_cc();
    let in_kernel = offered()?.into_iter().map(|name| {
        let status = match status_of(&name, pins.as_deref()) {
            Status::Kernel if bpf::is_from_bpf(&name) => Status::Program,
            status => status,
        };
        let sockets = census.as_ref().ok().map(|census| census.get(&name).copied().unwrap_or(0));
        Entry { about: about(status), name, status, sockets }
    });
    let mut entries: Vec<Entry> = in_kernel.collect();
    for module in Module::all() {
        let loaded = |entry: &Entry| entry.status == Status::Loaded(Some(module.name()));
        if !entries.iter().any(loaded) {
            let status = Status::Module(module.name());
            let name = format!("{OUR_CC}{}", module.name());
            entries.push(Entry { name, status, about: about(status), sockets: None });
        }
    }
    Ok(entries)
}

/// Whether the kernel has an algorithm of this name itself, loaded or ready to be.
///
/// # Errors
/// The kernel does not say.
pub fn has_own(name: &str) -> Result<bool, KernelError> {
    if !offered()?.iter().any(|offered| offered == name) {
        return Ok(kernel_ships(name));
    }
    Ok(status_of(name, Pin::all().as_deref()) == Status::Kernel)
}

/// A name that is not taken.
pub(crate) fn unused_name(module: &Module) -> Result<String, KernelError> {
    let taken = offered()?;
    // Inside of a PID namespace all engines have the same number; the clock tells them apart.
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).context("cannot read CLOCK_MONOTONIC")?;
    let seed = process::id() ^ (now.tv_nsec() as u32 >> 4);
    let mut names = (0..).map(|step| held_name(module.name(), seed.wrapping_add(step)));
    names
        .find(|name| !taken.contains(name))
        .ok_or("all are taken")
        .context("cannot find a name for the module")
}

/// What a module of `cc/` that has been loaded is called in the kernel.
pub fn loaded_name(module: &Module) -> Option<String> {
    let pins = Pin::all();
    let loaded = Status::Loaded(Some(module.name()));
    let is_it = |name: &String| status_of(name, pins.as_deref()) == loaded;
    offered().ok()?.into_iter().find(is_it).filter(|_| module.file().is_none())
}

/// Where the kernel's algorithm of this name comes from; `pins` is `None` for who may not look at them.
fn status_of(name: &str, pins: Option<&[Pin]>) -> Status {
    let module = Module::all().iter().find(|module| is_called(module, name)).map(Module::name);
    let loaded = match pins {
        Some(pins) => pins.iter().any(|pin| pin.kernel_name == name),
        None => name.starts_with(PREFIX) || (module.is_some() && !kernel_ships(name)),
    };
    match held_part(name) {
        _ if loaded => Status::Loaded(module),
        Some(_) => Status::Run(held_module(name).map(Module::name)),
        None => Status::Kernel,
    }
}

fn about(status: Status) -> Option<&'static str> {
    let name = match status {
        Status::Kernel | Status::Program => None,
        Status::Loaded(name) | Status::Run(name) => name,
        Status::Module(name) => Some(name),
    };
    Module::find(name?).ok().map(Module::about)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_ours_where_it_is_pinned_or_has_our_prefix() {
        let pins = [Pin::of("skyhop_cubic")];
        assert_eq!(status_of("skyhop_cubic", Some(&pins)), Status::Loaded(Some("cubic")));
        assert_eq!(status_of("skyhop_cubic", None), Status::Loaded(Some("cubic")));
        assert_eq!(status_of("cubic", Some(&pins)), Status::Kernel);
        assert_eq!(status_of("reno", None), Status::Kernel);
        assert_eq!(status_of("bbr_00ff1a", Some(&pins)), Status::Run(Some("bbr")));
        assert_eq!(status_of("idea_00ff1a", Some(&pins)), Status::Run(None));
        assert_eq!(status_of("idea", Some(&[Pin::of("idea")])), Status::Loaded(None));
        assert_eq!(status_of("dctcp", None), Status::Kernel);
    }

    #[test]
    fn the_kernel_offers_reno_and_ours_are_listed() {
        let entries = list().unwrap();
        let reno = entries.iter().find(|entry| entry.name == "reno").unwrap();
        assert_eq!(reno.status, Status::Kernel);
        for module in Module::all() {
            let name = module.name();
            let is_ours = |entry: &Entry| {
                [Status::Loaded(Some(name)), Status::Module(name)].contains(&entry.status)
            };
            assert!(entries.iter().any(is_ours), "{name}");
        }
    }
}
