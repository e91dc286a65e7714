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

/// Content of the file that marks the directory as skyhop's cache (https://bford.info/cachedir/): only from such a
/// directory are old files removed.
const MARK: &str = "Signature: 8a477f597d28d172789f06886806bc55\n\
                    # skyhop compiles congestion controls here, and removes the oldest files.\n";

/// Prefix of the name of a directory with skyhop's headers.
const HEADERS: &str = "headers-";

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
        if let Some(kept) = self.cache.as_ref().map(|cache| cache.join(headers_name())) {
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

/// Directory with skyhop's headers.
pub(crate) struct Headers {
    pub(crate) path: PathBuf,
    /// Temporary directory that contains them, if the cache cannot be written.
    build: Option<BuildDirectory>,
}

impl Headers {
    /// Find the cached headers, or write them.
    pub(crate) fn find() -> Result<Self, CcFileError> {
        if let Some(path) = directory().map(|cache| cache.join(headers_name()))
            && headers::are_current_in(&path)
        {
            return Ok(Self { path, build: None });
        }
        let build = BuildDirectory::open()?;
        let path = build.headers()?;
        let build = path.starts_with(build.place.path()).then_some(build);
        Ok(Self { path, build })
    }
}

/// Cached directory of skyhop's headers, for other programs; `None` if the cache cannot be written.
///
/// # Errors
/// The temporary directory cannot be written either.
pub fn headers_directory() -> Result<Option<PathBuf>, CcFileError> {
    let headers = Headers::find()?;
    Ok(headers.build.is_none().then_some(headers.path))
}

fn headers_name() -> String {
    format!("{HEADERS}{}", &headers::DIGEST[..16])
}

fn write_headers(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    headers::write(directory)
}

/// Create the cache and a build directory in it; remove unfinished directories and the oldest files beyond the limit.
fn prepare(cache: &Path) -> io::Result<Staging> {
    fs::create_dir_all(cache.parent().unwrap_or(cache))?;
    let mark = cache.join("CACHEDIR.TAG");
    match fs::create_dir(cache) {
        Ok(()) => fs::write(&mark, MARK)?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    remove_stale(cache, UNFINISHED, |_| Ok(()));
    let place = Staging::with_prefix(cache, UNFINISHED)?;
    if fs::read(&mark).is_ok_and(|content| content == MARK.as_bytes()) {
        remove_oldest(cache)?;
    }
    Ok(place)
}

/// Remove the oldest objects and headers beyond [`MOST_FILES`].
fn remove_oldest(cache: &Path) -> io::Result<()> {
    let mut entries: Vec<_> = fs::read_dir(cache)?
        .filter_map(|entry| {
            let entry = entry.ok()?;
            is_cached(&entry.file_name().to_string_lossy()).then_some(())?;
            Some((entry.metadata().ok()?.modified().ok()?, entry.path()))
        })
        .collect();
    entries.sort();
    for (_, old) in entries.iter().rev().skip(MOST_FILES) {
        // A process that still needs the file compiles it again.
        let _: io::Result<()> = fs::remove_file(old).or_else(|_| fs::remove_dir_all(old));
    }
    Ok(())
}

/// Whether a name is that of an object, of a compiler's messages, or of skyhop's headers: a digest with a prefix or a
/// suffix.
fn is_cached(name: &str) -> bool {
    let digest = match name.strip_prefix(HEADERS) {
        Some(digest) => digest,
        None => name.split_once('.').map_or("", |(digest, _)| digest),
    };
    [16, 32].contains(&digest.len()) && digest.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_marked_cache_loses_files_and_only_its_own() {
        let place = tempfile::tempdir().unwrap();
        let write = |directory: &Path| {
            for number in 0..MOST_FILES + 3 {
                fs::write(directory.join(format!("{number:032x}.so")), "object").unwrap();
            }
            fs::write(directory.join("notes.txt"), "mine").unwrap();
        };
        let (foreign, own) = (place.path().join("foreign"), place.path().join("own"));
        fs::create_dir(&foreign).unwrap();
        write(&foreign);
        drop(prepare(&foreign).unwrap());
        assert_eq!(fs::read_dir(&foreign).unwrap().count(), MOST_FILES + 4);
        drop(prepare(&own).unwrap());
        write(&own);
        drop(prepare(&own).unwrap());
        assert_eq!(fs::read_dir(&own).unwrap().count(), MOST_FILES + 2, "objects, mark, notes");
        assert!(own.join("notes.txt").exists());
    }

    #[test]
    fn the_next_compilation_removes_what_killed_ones_left() {
        let place = tempfile::tempdir().unwrap();
        let killed = prepare(place.path()).unwrap();
        let left = place.path().join(".new-left");
        fs::create_dir(&left).unwrap();
        fs::write(left.join("half.so"), "half").unwrap();
        fs::copy(killed.path().join(".lock"), left.join(".lock")).unwrap();
        drop(prepare(place.path()).unwrap());
        assert!(!left.exists());
        assert!(killed.path().exists(), "its process still runs");
    }
}
