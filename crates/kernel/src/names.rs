//! Names of modules in the kernel.

use std::fs;
use std::path::Path;

use nix::sys::utsname::uname;
use skyhop_cc::Module;
use skyhop_model::{CC_NAME_MAX_LEN, cc_language, cc_table, skyhop_cc_name};

use crate::entry::offered;
use crate::error::KernelError;

/// Prefix of a module's name if the kernel has an algorithm of the same name.
pub(crate) const PREFIX: &str = "skyhop_";

/// Number of letters of the module's name in a unique name; the rest is the number.
const STEM_LETTERS: usize = 8;

/// Find the module that a user means by a name such as "cubic", "skyhop:cubic", "skyhop_cubic" or
/// "cubic_1a2b3c", or by a file such as "./idea.c", which is compiled.
///
/// # Errors
/// [`KernelError::Module`] if there is no such module; [`KernelError::File`] if the file is wrong.
pub fn module_of(name: &str) -> Result<&'static Module, KernelError> {
    if cc_language(name).is_some() {
        return Ok(skyhop_ccfile::load(Path::new(name))?.module);
    }
    let plain = skyhop_cc_name(name).unwrap_or(name);
    let ours = module_of_unique_name(plain)
        .or_else(|| Module::all().iter().find(|known| has_name(known, plain)));
    ours.map_or_else(|| Ok(Module::find(plain)?), Ok)
}

/// Kernel names that a user may mean by a name such as "idea", "skyhop:idea" or "skyhop_idea", or
/// by a file such as "./idea.c".
pub(crate) fn names_in_kernel(name: &str) -> [String; 2] {
    let plain = if cc_language(name).is_some() {
        cc_table(name)
    } else {
        skyhop_cc_name(name).unwrap_or(name)
    };
    [plain.to_owned(), prefixed(plain)]
}

/// Whether `kernel_name` is a module's name, with or without the prefix.
pub(crate) fn has_name(module: &Module, kernel_name: &str) -> bool {
    module.name() == kernel_name || prefixed(module.name()) == kernel_name
}

/// Name with the prefix, skyhop_NAME, truncated to the kernel's limit.
pub(crate) fn prefixed(name: &str) -> String {
    format!("{PREFIX}{name}").chars().take(CC_NAME_MAX_LEN).collect()
}

/// Unique name for a registration of one process: the first letters of the module's name and a number. It must be
/// unique because the kernel has one list of names for all processes.
pub(crate) fn unique_name(name: &str, number: u32) -> String {
    format!("{name:.STEM_LETTERS$}_{:06x}", number & 0xff_ffff)
}

/// Part of the module's name in a name made by [`unique_name`]; `None` for other names.
pub(crate) fn unique_name_stem(kernel_name: &str) -> Option<&str> {
    let (part, number) = kernel_name.rsplit_once('_')?;
    let is_number = number.len() == 6 && number.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_number.then_some(part)
}

/// Module of a name made by [`unique_name`]; `None` for other names, and for a user's file.
pub(crate) fn module_of_unique_name(kernel_name: &str) -> Option<&'static Module> {
    let part = unique_name_stem(kernel_name)?;
    Module::all().iter().find(|known| unique_name_stem(&unique_name(known.name(), 0)) == Some(part))
}

/// Check that a name is valid, is not in use in the kernel, and is not the name of a module.
pub(crate) fn check_name_is_free(name: &str) -> Result<(), KernelError> {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "_.".contains(letter);
    if !(1..=CC_NAME_MAX_LEN).contains(&name.len()) || !name.chars().all(is_letter) {
        return Err(KernelError::WrongName(name.to_owned()));
    }
    let is_ours = Module::all().iter().any(|module| has_name(module, name));
    if is_ours || kernel_ships(name) || offered()?.iter().any(|taken| taken == name) {
        return Err(KernelError::NameTaken(name.to_owned()));
    }
    Ok(())
}

/// Whether the running kernel ships an algorithm of this name, loaded or not.
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
    fn a_chosen_name_must_not_be_in_use() {
        check_name_is_free("my_idea.2").unwrap();
        for wrong in ["", "sixteen__letters", "two words", "a/b", "über"] {
            assert!(matches!(check_name_is_free(wrong), Err(KernelError::WrongName(_))), "{wrong}");
        }
        for taken in ["reno", "satcp", "skyhop_satcp"] {
            assert!(matches!(check_name_is_free(taken), Err(KernelError::NameTaken(_))), "{taken}");
        }
    }

    #[test]
    fn every_name_fits_the_kernel() {
        for module in Module::all() {
            let unique = unique_name(module.name(), u32::MAX);
            assert_eq!(module_of_unique_name(&unique).unwrap().name(), module.name());
        }
        let longest = "fifteen_letters";
        assert_eq!((longest.len(), CC_NAME_MAX_LEN), (15, 15));
        // TCP_CA_NAME_MAX counts the end of the string.
        assert_eq!(unique_name(longest, 0x12_3456), "fifteen__123456");
        assert_eq!(unique_name_stem("fifteen__123456"), Some("fifteen_"));
        assert!(module_of_unique_name("fifteen__123456").is_none());
        assert_eq!(prefixed(longest), "skyhop_fifteen_");
        assert_eq!(prefixed("cubic"), "skyhop_cubic");
        for name in ["idea", "skyhop:idea", "some/where/idea.c"] {
            assert_eq!(names_in_kernel(name), ["idea", "skyhop_idea"]);
        }
    }
}
