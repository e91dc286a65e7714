//! The places under the BPF file system that keep a registration alive.
//!
//! `/sys/fs/bpf/skyhop/NAME/` holds `link` (from 6.4 on) or `map`, `signals` and `phases`.

use std::fs::{self, DirBuilder, File};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use nix::mount::{MsFlags, mount};
use nix::sys::statfs::{FsType, statfs};

use crate::error::{Context, KernelError};

const BPFFS: &str = "/sys/fs/bpf";
/// `BPF_FS_MAGIC` (linux/magic.h).
const MAGIC: FsType = FsType(0xcafe_4a11);

/// Makes sure that the BPF file system is there; returns whether it had to be mounted.
pub(crate) fn ensure_bpffs() -> Result<bool, KernelError> {
    if is_mounted() {
        return Ok(false);
    }
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("bpf"), BPFFS, Some("bpf"), flags, Some("mode=0755"))
        .context(&format!("cannot mount the BPF file system at {BPFFS}"))?;
    Ok(true)
}

fn is_mounted() -> bool {
    statfs(BPFFS).is_ok_and(|place| place.filesystem_type() == MAGIC)
}

/// What is pinned for one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pin {
    pub(crate) kernel_name: String,
    directory: PathBuf,
}

impl Pin {
    /// The place for a name, which need not exist.
    pub(crate) fn of(kernel_name: &str) -> Self {
        let directory = Path::new(BPFFS).join("skyhop").join(kernel_name);
        Self { kernel_name: kernel_name.to_owned(), directory }
    }

    /// Everything that is pinned, by name; nothing where the file system is not there.
    ///
    /// `None`: this user may not look.
    pub(crate) fn all() -> Option<Vec<Pin>> {
        let entries = match fs::read_dir(Path::new(BPFFS).join("skyhop")) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Some(Vec::new()),
            Err(_) => return None,
        };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut pins: Vec<Pin> = names.map(|name| Pin::of(&name)).collect();
        pins.sort_by(|a, b| a.kernel_name.cmp(&b.kernel_name));
        Some(pins)
    }

    pub(crate) fn link(&self) -> PathBuf {
        self.directory.join("link")
    }

    pub(crate) fn map(&self) -> PathBuf {
        self.directory.join("map")
    }

    pub(crate) fn signals(&self) -> PathBuf {
        self.directory.join("signals")
    }

    pub(crate) fn phases(&self) -> PathBuf {
        self.directory.join("phases")
    }

    /// Whether a registration is kept here, and not just the remains of an attempt.
    pub(crate) fn is_whole(&self) -> bool {
        self.link().exists() || self.map().exists()
    }

    pub(crate) fn create(&self) -> Result<(), KernelError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(&self.directory)
            .context(&format!("cannot create {}", self.directory.display()))
    }

    /// Removes it with everything in it, and the directory above it when it was the last.
    pub(crate) fn remove(&self) -> Result<(), KernelError> {
        match fs::remove_dir_all(&self.directory) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            removed => {
                removed.context(&format!("cannot remove {}", self.directory.display()))?;
            }
        }
        let above = Path::new(BPFFS).join("skyhop");
        match fs::remove_dir(&above) {
            // Others are loaded still.
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => Ok(()),
            removed => removed.context(&format!("cannot remove {}", above.display())),
        }
    }
}

/// One `cc load` or `cc unload` at a time.
pub(crate) fn lock() -> Result<Flock<File>, KernelError> {
    let directory = File::open(BPFFS).context(&format!("cannot open {BPFFS}"))?;
    Flock::lock(directory, FlockArg::LockExclusive)
        .map_err(|(_, error)| error)
        .context(&format!("cannot lock {BPFFS}"))
}
