//! List of congestion controls: the kernel's, and skyhop's loaded and unloaded modules.

use std::{fs, process};

use nix::time::{ClockId, clock_gettime};
use skyhop_cc::Module;
use skyhop_model::SKYHOP_CC_PREFIX;

use crate::bpf;
use crate::census::sockets_by_cc;
use crate::error::{Context, KernelError};
use crate::names::{
    PREFIX, has_name, kernel_ships, module_of_unique_name, unique_name, unique_name_stem,
};
use crate::pins::{self, Pin};

const OFFERED: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

/// Congestion control in the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Name by which programs select it; `skyhop:NAME` for a module of skyhop that is not in the kernel.
    pub name: String,
    /// Origin, and whether it is loaded.
    pub status: Status,
    /// One-line description of a module of `cc/`.
    pub about: Option<&'static str>,
    /// Number of sockets that use the congestion control, in the namespaces that the caller may enter; `None` if the
    /// kernel does not report it, or the module is not in the kernel.
    pub sockets: Option<u64>,
}

/// Origin of a congestion control, and whether it is loaded. The value is the name of skyhop's
/// module; `None` means a user's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Congestion control of the kernel.
    Kernel,
    /// Module loaded by skyhop until it is unloaded.
    Loaded(Option<&'static str>),
    /// Module registered by a live run until the run ends.
    Run(Option<&'static str>),
    /// Congestion control that another program, such as `skyhop policy serve`, has registered
    /// through BPF. Only root can detect this.
    Program,
    /// Module of skyhop that is not in the kernel.
    Module(&'static str),
}

/// Names of the congestion controls that this kernel offers, without those in kernel modules that
/// are not loaded.
///
/// # Errors
/// The kernel's list cannot be read.
pub fn offered() -> Result<Vec<String>, KernelError> {
    let names = fs::read_to_string(OFFERED).context(&format!("cannot read {OFFERED}"))?;
    Ok(names.split_whitespace().map(str::to_owned).collect())
}

/// List all congestion controls: those in the kernel, then skyhop's modules that are not in the kernel.
///
/// # Errors
/// The kernel's list cannot be read.
pub fn list() -> Result<Vec<Entry>, KernelError> {
    let offered = offered()?;
    pins::clean_up(&offered);
    let pins = Pin::all();
    let census = sockets_by_cc();
    let in_kernel = offered.into_iter().map(|name| {
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
            let name = format!("{SKYHOP_CC_PREFIX}{}", module.name());
            entries.push(Entry { name, status, about: about(status), sockets: None });
        }
    }
    Ok(entries)
}

/// Whether the kernel itself has an algorithm of this name, built in, loaded or as a loadable module.
///
/// # Errors
/// The kernel's list cannot be read.
pub fn has_own(name: &str) -> Result<bool, KernelError> {
    if !offered()?.iter().any(|offered| offered == name) {
        return Ok(kernel_ships(name));
    }
    Ok(status_of(name, Pin::all().as_deref()) == Status::Kernel)
}

/// Choose a unique name for a module that the kernel does not offer yet.
pub(crate) fn unused_name(module: &Module) -> Result<String, KernelError> {
    let taken = offered()?;
    // Every engine has PID 1 in its namespace, so that the process id alone would give equal seeds;
    // the clock makes them differ.
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).context("cannot read CLOCK_MONOTONIC")?;
    let seed = process::id() ^ (now.tv_nsec() as u32 >> 4);
    let mut names = (0..).map(|step| unique_name(module.name(), seed.wrapping_add(step)));
    names
        .find(|name| !taken.contains(name))
        .ok_or("all are taken")
        .context("cannot find a name for the module")
}

/// Kernel name of a module of `cc/` that `skyhop cc load` has loaded; `None` if the module is not loaded.
pub fn loaded_name(module: &Module) -> Option<String> {
    let pins = Pin::all();
    let loaded = Status::Loaded(Some(module.name()));
    let is_it = |name: &String| status_of(name, pins.as_deref()) == loaded;
    offered().ok()?.into_iter().find(is_it).filter(|_| module.file().is_none())
}

/// Origin of the algorithm with this name in the kernel; `pins` is `None` if the user may not read the pins.
fn status_of(name: &str, pins: Option<&[Pin]>) -> Status {
    let module = Module::all().iter().find(|module| has_name(module, name)).map(Module::name);
    let loaded = match pins {
        Some(pins) => pins.iter().any(|pin| pin.kernel_name == name),
        None => name.starts_with(PREFIX) || (module.is_some() && !kernel_ships(name)),
    };
    match unique_name_stem(name) {
        _ if loaded => Status::Loaded(module),
        Some(_) => Status::Run(module_of_unique_name(name).map(Module::name)),
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
