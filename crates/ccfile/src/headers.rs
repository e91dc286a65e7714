//! skyhop's own headers and congestion controls, embedded in every build.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::LazyLock;

use include_dir::{Dir, include_dir};
use sha2::{Digest as _, Sha256};

use crate::sources::hex;

static CC: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../cc");

/// SHA-256 of all headers with their names, in hexadecimal.
pub(crate) static DIGEST: LazyLock<String> = LazyLock::new(|| {
    let mut digest = Sha256::new();
    for (name, text) in headers() {
        digest.update(format!("{name} {}\n", text.len()));
        digest.update(text);
    }
    hex(&digest.finalize())
});

/// Content of the header with this name.
pub(crate) fn header(name: &str) -> Option<&'static [u8]> {
    headers().find(|(known, _)| *known == name).map(|(_, text)| text)
}

/// Whether a directory contains all headers as [`write`] would write them.
pub(crate) fn are_current_in(directory: &Path) -> bool {
    headers().all(|(name, text)| fs::read(directory.join(name)).is_ok_and(|found| found == text))
}

/// Write all headers to a directory.
pub(crate) fn write(directory: &Path) -> io::Result<()> {
    headers().try_for_each(|(name, text)| fs::write(directory.join(name), text))
}

/// Names of skyhop's own congestion controls, in alphabetical order.
pub fn examples() -> Vec<&'static str> {
    let mut names: Vec<_> = files("c").filter_map(|(name, _)| name.strip_suffix(".c")).collect();
    names.sort_unstable();
    names
}

/// Source text of skyhop's congestion control with this name.
pub fn example(name: &str) -> Option<&'static str> {
    CC.get_file(format!("{name}.c"))?.contents_utf8()
}

fn headers() -> impl Iterator<Item = (&'static str, &'static [u8])> {
    files("h")
}

fn files(extension: &'static str) -> impl Iterator<Item = (&'static str, &'static [u8])> {
    CC.files().filter_map(move |file| {
        let name = file.path().to_str()?;
        let matches = file.path().extension().is_some_and(|found| found == extension);
        matches.then_some((name, file.contents()))
    })
}
