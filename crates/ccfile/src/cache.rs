//! Cache of compiled objects: `$XDG_CACHE_HOME/skyhop/cc`.
//!
//! Each file is created by a rename, under a digest of its inputs, so that processes need no locking. If the cache
//! cannot be written, each process compiles in a temporary directory.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use skyhop_files::{Staging, remove_stale};

use crate::error::CcFileError;
use crate::headers;

/// Largest number of cached files, which have about 50 kB each; if there are more, the oldest are removed.
const MOST_FILES: usize = 400;

/// Prefix of directories in which a process is compiling.
const UNFINISHED: &str = ".new-";

/// Path of a cached file; `None` if it is not in the cache.
pub(crate) fn cached(name: &str) -> Option<PathBuf> {
    let file = directory()?.join(name);
    file.is_file().then_some(file)
}

/// Cache directory: `$XDG_CACHE_HOME/skyhop/cc`, else `~/.cache/skyhop/cc`; `None` if the user has no home.
fn directory() -> Option<PathBuf> {
    let named = |variable| env::var_os(variable).map(PathBuf::from).filter(|dir| dir.is_absolute());
    let caches = named("XDG_CACHE_HOME").or_else(|| Some(named("HOME")?.join(".cache")))?;
    Some(caches.join("skyhop").join("cc"))
}

/// Temporary directory to compile in, removed on drop.
pub(crate) struct BuildDirectory {
    place: Staging,
    /// Cache directory for the results; `None` if it cannot be written.
    cache: Option<PathBuf>,
}

impl BuildDirectory {
    pub(crate) fn open() -> Result<Self, CcFileError> {
        let in_cache =
            directory().and_then(|cache| prepare(&cache).ok().map(|place| (place, cache)));
        if let Some((place, cache)) = in_cache {
            return Ok(Self { place, cache: Some(cache) });
        }
        let temporary = env::temp_dir();
        let place = Staging::cleaned(&temporary).map_err(|error| {
            let place = temporary.display().to_string();
            CcFileError::Write { place, reason: error.to_string() }
        })?;
        Ok(Self { place, cache: None })
    }

    /// Path of a file of this name in the directory.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// Directory with skyhop's headers: in the cache if possible, so that debuggers and editors
    /// find them later; else in this build directory.
    pub(crate) fn headers(&self) -> Result<PathBuf, CcFileError> {
        let name = format!("headers-{}", &headers::DIGEST[..16]);
        if let Some(kept) = self.cache.as_ref().map(|cache| cache.join(&name)) {
            if headers::are_current_in(&kept) {
                return Ok(kept);
            }
            let made = self.place.path().join("kept");
            let put = write_headers(&made).is_ok() && fs::rename(&made, &kept).is_ok();
            // Another process may have created them first.
            if put || headers::are_current_in(&kept) {
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

    /// Move a compiled file to the cache if possible; return its path.
    pub(crate) fn store(&self, name: &str) -> PathBuf {
        let made = self.file(name);
        let Some(cache) = &self.cache else { return made };
        let kept = cache.join(name);
        if fs::rename(&made, &kept).is_err() { made } else { kept }
    }
}

/// Cached directory of skyhop's headers, for other programs; `None` if the cache cannot be written.
///
/// # Errors
/// The temporary directory cannot be written either.
pub fn headers_directory() -> Result<Option<PathBuf>, CcFileError> {
    let build = BuildDirectory::open()?;
    Ok(Some(build.headers()?).filter(|place| !place.starts_with(build.place.path())))
}

fn write_headers(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    headers::write(directory)
}

/// Create the cache and a build directory in it; remove unfinished directories and the oldest files beyond the limit.
fn prepare(cache: &Path) -> io::Result<Staging> {
    fs::create_dir_all(cache)?;
    remove_stale(cache, UNFINISHED, |_| Ok(()));
    let place = Staging::with_prefix(cache, UNFINISHED)?;
    let mut entries: Vec<_> = fs::read_dir(cache)?
        .filter_map(|entry| {
            let entry = entry.ok()?;
            Some((entry.metadata().ok()?.modified().ok()?, entry.path()))
        })
        .collect();
    if entries.len() > MOST_FILES {
        entries.sort();
        for (_, old) in &entries[..entries.len() - MOST_FILES] {
            // A process that still needs the file compiles it again.
            let _: io::Result<()> = fs::remove_file(old).or_else(|_| fs::remove_dir_all(old));
        }
    }
    Ok(place)
}
