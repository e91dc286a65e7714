//! What a module is called in the kernel.

use std::fs;
use std::path::Path;

use nix::sys::utsname::uname;
use skyhop_cc::Module;
use skyhop_model::{MOST_CC_LETTERS, cc_language, cc_table, our_cc_name};

use crate::entry::offered;
use crate::error::KernelError;

/// What stands before the name where the kernel has an algorithm of that name itself.
pub(crate) const PREFIX: &str = "skyhop_";

/// So many letters of a module's name are left beside a holder's number.
const HELD_LETTERS: usize = 8;

/// The module that a user means by "cubic", "skyhop:cubic", "skyhop_cubic", "cubic_1a2b3c" or the file "./idea.c",
/// which is compiled.
///
/// # Errors
/// [`KernelError::Module`]: there is none; [`KernelError::File`].
pub fn module_of(name: &str) -> Result<&'static Module, KernelError> {
    if cc_language(name).is_some() {
        return Ok(skyhop_ccfile::load(Path::new(name))?.module);
    }
    let plain = our_cc_name(name).unwrap_or(name);
    let ours =
        held_module(plain).or_else(|| Module::all().iter().find(|known| is_called(known, plain)));
    ours.map_or_else(|| Ok(Module::find(plain)?), Ok)
}

/// The names in the kernel that a user may mean by "idea", "skyhop:idea", "skyhop_idea" or "./idea.c".
pub(crate) fn names_in_kernel(name: &str) -> [String; 2] {
    let plain = if cc_language(name).is_some() {
        cc_table(name)
    } else {
        our_cc_name(name).unwrap_or(name)
    };
    [plain.to_owned(), prefixed(plain)]
}

/// Whether this is a module's name, or that with which it is loaded where the kernel has one of that name.
pub(crate) fn is_called(module: &Module, kernel_name: &str) -> bool {
    module.name() == kernel_name || prefixed(module.name()) == kernel_name
}

/// skyhop_NAME, as much of it as the kernel has room for.
pub(crate) fn prefixed(name: &str) -> String {
    format!("{PREFIX}{name}").chars().take(MOST_CC_LETTERS).collect()
}

/// The name of a registration that only its holder uses: the kernel has one list for everybody. Of a long name it has
/// the first letters.
pub(crate) fn held_name(name: &str, number: u32) -> String {
    format!("{name:.HELD_LETTERS$}_{:06x}", number & 0xff_ffff)
}

/// The part of the module's name in one that [`held_name`] made.
pub(crate) fn held_part(kernel_name: &str) -> Option<&str> {
    let (part, number) = kernel_name.rsplit_once('_')?;
    let is_number = number.len() == 6 && number.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_number.then_some(part)
}

/// The module of a name that [`held_name`] made; `None` where it is a file of the user's.
pub(crate) fn held_module(kernel_name: &str) -> Option<&'static Module> {
    let part = held_part(kernel_name)?;
    Module::all().iter().find(|known| held_part(&held_name(known.name(), 0)) == Some(part))
}

/// Refuses a name that the kernel does not take, that it has already, or that is a module's own.
pub(crate) fn refuse_unless_free(name: &str) -> Result<(), KernelError> {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "_.".contains(letter);
    if !(1..=MOST_CC_LETTERS).contains(&name.len()) || !name.chars().all(is_letter) {
        return Err(KernelError::WrongName(name.to_owned()));
    }
    let is_ours = Module::all().iter().any(|module| is_called(module, name));
    if is_ours || kernel_ships(name) || offered()?.iter().any(|taken| taken == name) {
        return Err(KernelError::NameTaken(name.to_owned()));
    }
    Ok(())
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
    fn a_chosen_name_is_one_that_nobody_has() {
        refuse_unless_free("my_idea.2").unwrap();
        for wrong in ["", "sixteen__letters", "two words", "a/b", "über"] {
            assert!(matches!(refuse_unless_free(wrong), Err(KernelError::WrongName(_))), "{wrong}");
        }
        for taken in ["reno", "satcp", "skyhop_satcp"] {
            assert!(matches!(refuse_unless_free(taken), Err(KernelError::NameTaken(_))), "{taken}");
        }
    }

    #[test]
    fn every_name_fits_the_kernel() {
        for module in Module::all() {
            let held = held_name(module.name(), u32::MAX);
            assert_eq!(held_module(&held).unwrap().name(), module.name());
        }
        let longest = "fifteen_letters";
        assert_eq!((longest.len(), MOST_CC_LETTERS), (15, 15));
        // TCP_CA_NAME_MAX counts the end of the string.
        assert_eq!(held_name(longest, 0x12_3456), "fifteen__123456");
        assert_eq!(held_part("fifteen__123456"), Some("fifteen_"));
        assert!(held_module("fifteen__123456").is_none());
        assert_eq!(prefixed(longest), "skyhop_fifteen_");
        assert_eq!(prefixed("cubic"), "skyhop_cubic");
        for name in ["idea", "skyhop:idea", "some/where/idea.c"] {
            assert_eq!(names_in_kernel(name), ["idea", "skyhop_idea"]);
        }
    }
}
