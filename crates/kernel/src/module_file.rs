//! Congestion controls that are built as kernel modules and inserted into the kernel; skyhop uses each one
//! through its file in /proc (cc/kernel_module.h).

use std::fs::{File, OpenOptions};
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use skyhop_cc::bindings::{
    Announcement, Decided, Registration, SKYHOP_DECIDING_AT, SKYHOP_MOST_PARAMS,
};
use skyhop_cc::{Decision, Handover, MapValue as _, Module, Report, bindings};
use skyhop_model::POLICY_CC;

use crate::entry::unused_name;
use crate::error::{Context, KernelError};
use crate::{PhaseEvent, Scope};

/// Number of structs per read.
const STRUCTS_PER_READ: usize = 64;
const READ_ACTION: &str = "cannot read what a module reports";
/// File offset at which announcements are written and phases read.
const SIGNALS_AT: u64 = 0;
/// File offset at which decisions are written and reports read.
const DECIDING_AT: u64 = SKYHOP_DECIDING_AT as u64;

/// File in /proc of a module that is in the kernel; `None` if it is not.
pub(crate) fn of(module: &Module) -> Option<PathBuf> {
    let file = Path::new("/proc").join(skyhop_ccfile::kernel_module_name(module));
    file.exists().then_some(file)
}

/// Registration of a module; it ends when this value and all its clones are dropped.
#[derive(Debug)]
pub(crate) struct ModuleFile {
    file: File,
    kernel_name: String,
    uses_announcements: bool,
    reports: bool,
}

impl ModuleFile {
    /// Open the module's file and register the module under a unique name.
    pub(crate) fn register(
        path: &Path,
        module: &Module,
        parameters: &[(&str, &str)],
    ) -> Result<Self, KernelError> {
        let kernel_name = unused_name(module)?;
        let wanted = registration(&kernel_name, &module.values(parameters)?);
        let action = format!("cannot register {} through {}", module.name(), path.display());
        let file = OpenOptions::new().read(true).write(true).open(path).context(&action)?;
        write_whole(&file, SIGNALS_AT, wanted.as_bytes()).context(&action)?;
        let reports = module.name() == POLICY_CC;
        Ok(Self { file, kernel_name, uses_announcements: module.uses_announcements(), reports })
    }

    pub(crate) fn kernel_name(&self) -> &str {
        &self.kernel_name
    }

    /// Whether the module uses announcements.
    pub(crate) fn uses_announcements(&self) -> bool {
        self.uses_announcements
    }

    /// Whether the module sends reports and takes decisions.
    pub(crate) fn reports(&self) -> bool {
        self.reports
    }

    /// Duplicate the handle of the registration, for another thread.
    pub(crate) fn try_clone(&self) -> Result<Self, KernelError> {
        let file = self.file.try_clone().context("cannot share a module's file")?;
        Ok(Self { file, kernel_name: self.kernel_name.clone(), ..*self })
    }

    /// Announce a handover. A handover that is not valid (`valid` is 0) withdraws the announcement.
    pub(crate) fn announce(&self, scope: Scope, handover: &Handover) -> Result<(), KernelError> {
        let announcement = Announcement { key: scope.key(), handover: *handover };
        write_whole(&self.file, SIGNALS_AT, announcement.as_bytes())
            .context("cannot announce a handover")
    }

    /// Read the phases reported since the last call.
    pub(crate) fn read_phases(&self) -> Result<Vec<PhaseEvent>, KernelError> {
        self.read_all(SIGNALS_AT, size_of::<bindings::Told>(), PhaseEvent::parse)
    }

    /// Read the reports since the last call; the module queues reports from the first call on.
    pub(crate) fn read_reports(&self) -> Result<Vec<Report>, KernelError> {
        self.read_all(DECIDING_AT, size_of::<Report>(), Report::from_bytes)
    }

    /// Read the reports since the last call; if there are none, wait up to `timeout` for the first.
    pub(crate) fn wait_for_reports(&self, timeout: Duration) -> Result<Vec<Report>, KernelError> {
        let timeout = PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(self.file.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(_) | Err(Errno::EINTR) => self.read_reports(),
            Err(error) => Err(error).context(READ_ACTION),
        }
    }

    /// Write the decision for a connection; the default decision withdraws it.
    pub(crate) fn decide(&self, id: u64, decision: &Decision) -> Result<(), KernelError> {
        let decided = Decided { id, decision: *decision };
        write_whole(&self.file, DECIDING_AT, decided.as_bytes()).context("cannot write a decision")
    }

    fn read_all<T>(
        &self,
        at: u64,
        size: usize,
        parse: impl Fn(&[u8]) -> Option<T>,
    ) -> Result<Vec<T>, KernelError> {
        let mut all = Vec::new();
        let mut bytes = vec![0; STRUCTS_PER_READ * size];
        loop {
            let length = self.file.read_at(&mut bytes, at).context(READ_ACTION)?;
            all.extend(bytes[..length].chunks(size).filter_map(&parse));
            if length < bytes.len() {
                return Ok(all);
            }
        }
    }
}

/// Write all bytes in one call, as the module requires.
fn write_whole(file: &File, at: u64, bytes: &[u8]) -> Result<(), String> {
    match file.write_at(bytes, at) {
        Ok(length) if length == bytes.len() => Ok(()),
        Ok(length) => Err(format!("it accepted {length} of {} bytes", bytes.len())),
        Err(error) => Err(error.to_string()),
    }
}

fn registration(kernel_name: &str, values: &[u64]) -> Registration {
    let mut wanted = Registration {
        name: [0; 16],
        params_len: values.len() as u64,
        params: [0; SKYHOP_MOST_PARAMS as usize],
    };
    for (place, byte) in wanted.name.iter_mut().zip(kernel_name.bytes()) {
        *place = byte as std::ffi::c_char;
    }
    for (place, value) in wanted.params.iter_mut().zip(values) {
        *place = *value;
    }
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registration_holds_the_name_and_the_values_in_their_order() {
        let wanted = registration("cubic_00ff1a", &[717, 2, 3]);
        let name: Vec<u8> = wanted.name.iter().map(|byte| *byte as u8).collect();
        assert_eq!(&name, b"cubic_00ff1a\0\0\0\0");
        assert_eq!((wanted.params_len, &wanted.params[..4]), (3, &[717, 2, 3, 0][..]));
    }

    #[test]
    fn every_module_has_room_for_its_parameters() {
        for module in Module::all() {
            assert!(module.params().len() <= SKYHOP_MOST_PARAMS as usize, "{}", module.name());
        }
    }
}
