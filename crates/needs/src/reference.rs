//! Published reference files: tests/reference.toml lists them, `make reference` downloads them.

use std::env;
use std::path::{Path, PathBuf};

use crate::missing;

const LIST: &str = include_str!("../../../tests/reference.toml");

/// Environment variable with the folder that holds the files, relative to the checkout, instead of the usual two.
pub const FOLDER: &str = "SKYHOP_REFERENCE";

/// Path of a published file by its name in tests/reference.toml; `None` if this machine does not have it, which
/// records the test as skipped.
///
/// # Panics
/// tests/reference.toml does not list the file, or [`missing`] panics.
#[track_caller]
pub fn reference(name: &str) -> Option<PathBuf> {
    let list: toml::Table = LIST.parse().expect("tests/reference.toml is TOML");
    assert!(list.contains_key(name), "tests/reference.toml does not list \"{name}\"");
    let file = folder().join(name);
    if file.is_file() {
        return Some(file);
    }
    missing("reference", format!("no {name}"));
    None
}

/// Folder of the reference files, found as in validation/reference.py.
fn folder() -> PathBuf {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    if let Some(named) = non_empty(FOLDER) {
        return checkout.join(named);
    }
    let beside = checkout.join("../shared/data");
    if beside.is_dir() {
        return beside;
    }
    let cache = non_empty("XDG_CACHE_HOME")
        .unwrap_or_else(|| non_empty("HOME").unwrap_or_default().join(".cache"));
    cache.join("skyhop/reference")
}

fn non_empty(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "does not list")]
    fn an_unlisted_file_is_a_mistake() {
        reference("nothing.csv");
    }
}
