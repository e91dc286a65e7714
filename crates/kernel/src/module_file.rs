//! A module that the kernel's own build has made of a congestion control's file, and somebody has put into the kernel:
//! reached by the file that it has in /proc (cc/kernel_module.h).

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use skyhop_cc::bindings::{Announcement, Registration, SKYHOP_MOST_PARAMS};
use skyhop_cc::{Handover, MapValue as _, Module, bindings};

use crate::entry::unused_name;
use crate::error::{Context, KernelError};
use crate::{Scope, Told};

/// So much is read at a time.
const READ_BYTES: usize = 64 * size_of::<bindings::Told>();

/// The file of a module that is in the kernel.
pub(crate) fn of(module: &Module) -> Option<PathBuf> {
    let file = Path::new("/proc").join(skyhop_ccfile::kernel_module_name(module));
    file.exists().then_some(file)
}

/// A registration, which ends when this and all of its clones are closed.
#[derive(Debug)]
pub(crate) struct ModuleFile {
    file: File,
    kernel_name: String,
    hears: bool,
}

impl ModuleFile {
    /// Opens the module's file and registers it under a name of its own.
    pub(crate) fn register(
        place: &Path,
        module: &Module,
        parameters: &[(&str, &str)],
    ) -> Result<Self, KernelError> {
        let kernel_name = unused_name(module)?;
        let wanted = registration(&kernel_name, &module.values(parameters)?);
        let action = format!("cannot register {} through {}", module.name(), place.display());
        let file = OpenOptions::new().read(true).write(true).open(place).context(&action)?;
        write_whole(&file, wanted.as_bytes()).context(&action)?;
        Ok(Self { file, kernel_name, hears: module.hears_handovers() })
    }

    pub(crate) fn kernel_name(&self) -> &str {
        &self.kernel_name
    }

    /// Whether its connections look for announcements.
    pub(crate) fn hears(&self) -> bool {
        self.hears
    }

    /// The same registration once more, for another thread.
    pub(crate) fn try_clone(&self) -> Result<Self, KernelError> {
        let file = self.file.try_clone().context("cannot share a module's file")?;
        Ok(Self { file, kernel_name: self.kernel_name.clone(), hears: self.hears })
    }

    /// Announces a handover, or with one that is not valid takes back what was announced.
    pub(crate) fn announce(&self, scope: Scope, handover: &Handover) -> Result<(), KernelError> {
        let said = Announcement { key: scope.key(), handover: *handover };
        write_whole(&self.file, said.as_bytes()).context("cannot announce a handover")
    }

    /// What its connections have told since the last call.
    pub(crate) fn read_told(&self) -> Result<Vec<Told>, KernelError> {
        let mut told = Vec::new();
        let mut bytes = [0; READ_BYTES];
        loop {
            let length =
                (&self.file).read(&mut bytes).context("cannot read what a module reports")?;
            told.extend(
                bytes[..length].chunks(size_of::<bindings::Told>()).filter_map(Told::parse),
            );
            if length < READ_BYTES {
                return Ok(told);
            }
        }
    }
}

/// In one piece, which is how the module takes it.
fn write_whole(mut file: &File, bytes: &[u8]) -> Result<(), String> {
    match file.write(bytes) {
        Ok(length) if length == bytes.len() => Ok(()),
        Ok(length) => Err(format!("it took {length} of {} bytes", bytes.len())),
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
