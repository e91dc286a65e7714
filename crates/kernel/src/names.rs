//! What a module is called in the kernel.

use std::fs;
use std::path::Path;

use nix::sys::utsname::uname;
use skyhop_cc::{CcError, Module};
use skyhop_model::our_cc_name;

/// What stands before the name where the kernel has an algorithm of that name itself.
pub(crate) const PREFIX: &str = "skyhop_";

/// The module that a user means by "cubic", "skyhop:cubic", "skyhop_cubic" or "cubic_1a2b3c".
///
/// # Errors
/// [`CcError::UnknownModule`].
pub fn module_of(name: &str) -> Result<&'static Module, CcError> {
    let plain = our_cc_name(name).or(name.strip_prefix(PREFIX)).unwrap_or(name);
    match held_module(plain) {
        Some(module) => Ok(module),
        None => Module::find(plain),
    }
}

/// The name of a registration that only its holder uses: the kernel has one list for everybody.
pub(crate) fn held_name(module: &Module, number: u32) -> String {
    format!("{}_{:06x}", module.name(), number & 0xff_ffff)
}

/// The module of a name that [`held_name`] made.
pub(crate) fn held_module(kernel_name: &str) -> Option<&'static Module> {
    let (module, number) = kernel_name.rsplit_once('_')?;
    let is_number = number.len() == 6 && number.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_number.then(|| Module::all().iter().find(|known| known.name() == module)).flatten()
}

/// Whether the running kernel comes with an algorithm of this name, loaded or not.
pub(crate) fn kernel_ships(name: &str) -> bool {
    if name == "reno" || Path::new(&format!("/sys/module/tcp_{name}")).exists() {
        return true;
    }
    let Ok(system) = uname() else { return false };
    let modules = Path::new("/lib/modules").join(system.release());
    ["modules.builtin", "modules.dep"].iter().any(|index| {
        fs::read_to_string(modules.join(index))
            .is_ok_and(|text| text.contains(&format!("/tcp_{name}.ko")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_found_by_all_of_its_names() {
        for name in ["cubic", "skyhop:cubic", "skyhop_cubic", "cubic_00ff1a"] {
            assert_eq!(module_of(name).unwrap().name(), "cubic", "{name}");
        }
        assert!(module_of("cubic_00ff1").is_err());
    }

    #[test]
    fn every_name_fits_the_kernel() {
        for module in Module::all() {
            let held = held_name(module, u32::MAX);
            assert_eq!(held_module(&held).unwrap().name(), module.name());
            // TCP_CA_NAME_MAX counts the end of the string.
            assert!(held.len() < 16 && format!("{PREFIX}{}", module.name()).len() < 16, "{held}");
        }
    }
}
