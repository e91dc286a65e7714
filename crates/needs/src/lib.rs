//! Helpers of tests: reference files ([`linux`], [`reference`]), skips for missing tools, and random cases.
//!
//! A test that cannot run calls [`missing`] and returns. Cargo counts it as passed, so the skip is
//! also appended to a file that `make test` reads (`scripts/tests.py`), and a variable turns it into
//! a failure on machines that must not skip. [`cases`] and [`fuzz`] try more cases in `make soak`.

use std::env;
use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;
use std::thread;

pub mod fuzz;
pub mod linux;
pub mod onnx;
mod reference;

pub use reference::reference;

/// Environment variable with the file to which skips are appended, one JSON object per line: test, need, why.
pub const RECORD: &str = "SKYHOP_SKIPPED";
/// Environment variable with the needs, separated by commas, without which a test fails instead of being skipped.
pub const REQUIRE: &str = "SKYHOP_REQUIRE";
/// Environment variable with the factor by which the number of random cases grows.
pub const SOAK: &str = "SKYHOP_SOAK";

/// List of needs; its keys are the only names that [`missing`] accepts.
const NEEDS: &str = include_str!("../../../tests/needs.toml");

/// Record that the calling test is skipped because this machine lacks `need`.
///
/// # Panics
/// `SKYHOP_REQUIRE` names the need, or tests/needs.toml does not list it.
#[track_caller]
pub fn missing(need: &str, why: impl Display) {
    let needs: toml::Table = NEEDS.parse().expect("tests/needs.toml is TOML");
    assert!(needs.contains_key(need), "tests/needs.toml does not list \"{need}\"");
    let required = env::var(REQUIRE).unwrap_or_default();
    assert!(!names(&required, need), "{REQUIRE} names {need}, but it is missing here: {why}");
    println!("skipped: needs {need}: {why}");
    if let Some(file) = env::var_os(RECORD) {
        let test = format!("{}::{}", binary(), test());
        let line = serde_json::json!({"test": test, "need": need, "why": why.to_string()});
        let record = OpenOptions::new().create(true).append(true).open(&file);
        // A single write keeps lines of several processes apart.
        let written = record.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
        written.unwrap_or_else(|error| panic!("{file:?}: cannot write: {error}"));
    }
}

/// Number of random cases that a test tries: `usual`, multiplied by `SKYHOP_SOAK` if that is set.
///
/// # Panics
/// The variable is not a whole number.
pub fn cases(usual: u32) -> u32 {
    match env::var(SOAK) {
        Ok(times) => usual * times.parse::<u32>().expect("SKYHOP_SOAK is a whole number"),
        Err(_) => usual,
    }
}

/// Whether a list such as "kernel, clang" contains a need.
fn names(list: &str, need: &str) -> bool {
    list.split(',').any(|name| name.trim() == need)
}

/// Name of the running test: cargo-nextest sets a variable, `cargo test` names the thread after it.
fn test() -> String {
    env::var("NEXTEST_TEST_NAME")
        .unwrap_or_else(|_| thread::current().name().unwrap_or("main").to_owned())
}

/// Name of the test binary without cargo's hash.
fn binary() -> String {
    let path = env::current_exe().unwrap_or_default();
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    stem.rsplit_once('-').map_or(stem.clone(), |(name, _)| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_names_whole_words() {
        assert!(names("kernel, clang", "clang"));
        assert!(!names("kernels", "kernel"));
        assert!(!names("", "kernel"));
    }

    #[test]
    #[should_panic(expected = "does not list")]
    fn an_unlisted_need_is_a_mistake() {
        missing("unicorns", "there are none");
    }
}
