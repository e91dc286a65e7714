//! Tests that compile user files with this machine's compilers.

mod cache;
mod files;

use std::fs;
use std::path::{Path, PathBuf};

/// Write Reno to idea.c in `directory`, with `cut` as its slow-start threshold after a loss.
pub fn idea(directory: &Path, cut: &str) -> PathBuf {
    let file = directory.join("idea.c");
    let reno = skyhop_ccfile::example("reno").expect("cc/reno.c");
    let text = reno.replace("return tcp_reno_ssthresh(sk);", &format!("return {cut};"));
    assert_ne!(text, reno);
    fs::write(&file, text).expect("a temporary directory can be written");
    file
}

/// Whether a program is installed; records a skip if it is not.
pub fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|directory| directory.join(program).is_file());
    if !found {
        skyhop_needs::missing("clang", format!("there is no {program}"));
    }
    found
}
