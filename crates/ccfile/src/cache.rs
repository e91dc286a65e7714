//! Where what was compiled is kept: `$XDG_CACHE_HOME/skyhop/cc`.
//!
//! Each file appears there whole, by a rename, under a name that says all it was made of: processes need not know of each
//! other. Where nothing can be written, it is all done in a temporary directory, and again by the next process.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use skyhop_files::{Staging, clear_remains};

use crate::error::CcFileError;
use crate::headers;

/// So many files are kept, some 50 kB each; the oldest go.
const MOST_KEPT: usize = 400;

/// What a directory begins with that somebody works in.
const UNFINISHED: &str = ".new-";

/// A file of the cache, whether it is there or not.
pub(crate) fn kept(name: &str) -> Option<PathBuf> {
    let file = directory()?.join(name);
    file.is_file().then_some(file)
}

/// `$XDG_CACHE_HOME/skyhop/cc`, else `~/.cache/skyhop/cc`; `None`: this user has no home.
fn directory() -> Option<PathBuf> {
    let named = |variable| env::var_os(variable).map(PathBuf::from).filter(|dir| dir.is_absolute());
    let caches = named("XDG_CACHE_HOME").or_else(|| Some(named("HOME")?.join(".cache")))?;
    Some(caches.join("skyhop").join("cc"))
}

/// A directory to compile in, which goes when this does.
pub(crate) struct Workshop {
    place: Staging,
    /// Where what it made is kept; `None`: it cannot be.
    cache: Option<PathBuf>,
}

impl Workshop {
    pub(crate) fn open() -> Result<Self, CcFileError> {
        let cached = directory().and_then(|cache| prepare(&cache).ok().map(|place| (place, cache)));
        if let Some((place, cache)) = cached {
            return Ok(Self { place, cache: Some(cache) });
        }
        let temporary = env::temp_dir();
        let place = Staging::beside(&temporary).map_err(|error| {
            let place = temporary.display().to_string();
            CcFileError::Write { place, reason: error.to_string() }
        })?;
        Ok(Self { place, cache: None })
    }

    /// A file of this name to be made here.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// Where skyhop's headers are: in the cache, for debuggers and editors to find them later, or here.
    pub(crate) fn headers(&self) -> Result<PathBuf, CcFileError> {
        let name = format!("headers-{}", &headers::DIGEST[..16]);
        if let Some(kept) = self.cache.as_ref().map(|cache| cache.join(&name)) {
            if headers::are_in(&kept) {
                return Ok(kept);
            }
            let made = self.place.path().join("kept");
            let put = write_headers(&made).is_ok() && fs::rename(&made, &kept).is_ok();
            // Another process may have been faster.
            if put || headers::are_in(&kept) {
                return Ok(kept);
            }
        }
        let here = self.place.path().join("headers");
        let refused = |error: io::Error| CcFileError::Write {
            place: here.display().to_string(),
            reason: error.to_string(),
        };
        write_headers(&here).map_err(refused)?;
        Ok(here)
    }

    /// Keeps a file that was made here; returns where it is now.
    pub(crate) fn keep(&self, name: &str) -> PathBuf {
        let made = self.file(name);
        let Some(cache) = &self.cache else { return made };
        let kept = cache.join(name);
        if fs::rename(&made, &kept).is_err() { made } else { kept }
    }
}

/// Where skyhop's headers are for others to read; `None`: nothing can be kept.
///
/// # Errors
/// Nothing can be written at all.
pub fn headers_directory() -> Result<Option<PathBuf>, CcFileError> {
    let workshop = Workshop::open()?;
    Ok(Some(workshop.headers()?).filter(|place| !place.starts_with(workshop.place.path())))
}

fn write_headers(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    headers::write(directory)
}

/// A directory to work in, in the cache, which is made and kept within its size.
fn prepare(cache: &Path) -> io::Result<Staging> {
    fs::create_dir_all(cache)?;
    clear_remains(cache, UNFINISHED, |_| Ok(()));
    let place = Staging::begin(cache, UNFINISHED)?;
    let mut entries: Vec<_> = fs::read_dir(cache)?
        .filter_map(|entry| {
            let entry = entry.ok()?;
            Some((entry.metadata().ok()?.modified().ok()?, entry.path()))
        })
        .collect();
    if entries.len() > MOST_KEPT {
        entries.sort();
        for (_, old) in &entries[..entries.len() - MOST_KEPT] {
            // Whoever needs it still makes it again.
            let _: io::Result<()> = fs::remove_file(old).or_else(|_| fs::remove_dir_all(old));
        }
    }
    Ok(place)
}
