//! Pins in the BPF file system, which keep registrations of modules alive.
//!
//! Directory `/sys/fs/bpf/skyhop/NAME/` contains `link` (Linux 6.4 and newer) or `map`, `signals` and `phases`.

use std::fs::{self, DirBuilder, File};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use nix::mount::{MsFlags, mount};
use nix::sys::statfs::{FsType, statfs};
use tracing::{debug, info};

use crate::error::{Context, KernelError};

const BPFFS: &str = "/sys/fs/bpf";
/// Magic number of the BPF file system: `BPF_FS_MAGIC` (linux/magic.h).
const MAGIC: FsType = FsType(0xcafe_4a11);

/// Mount the BPF file system if it is not mounted; return whether this call mounted it.
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

/// Pinned objects of one registration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pin {
    pub(crate) kernel_name: String,
    directory: PathBuf,
}

impl Pin {
    /// Pin of this name, which need not exist.
    pub(crate) fn of(kernel_name: &str) -> Self {
        let directory = Path::new(BPFFS).join("skyhop").join(kernel_name);
        Self { kernel_name: kernel_name.to_owned(), directory }
    }

    /// All existing pins, sorted by name; empty if the file system is not mounted.
    ///
    /// Returns `None` if this user may not read the directory.
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

    /// Whether the pin contains a registration, as opposed to the remains of a killed process. Before Linux 6.4 a
    /// pinned map is registered only if the kernel offers its name.
    pub(crate) fn is_complete(&self, offered: &[String]) -> bool {
        self.link().exists() || (self.map().exists() && offered.contains(&self.kernel_name))
    }

    pub(crate) fn create(&self) -> Result<(), KernelError> {
        debug!(directory = %self.directory.display(), "pin created");
        DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(&self.directory)
            .context(&format!("cannot create {}", self.directory.display()))
    }

    /// Remove the pin with its objects, and the parent directory if this was the last pin. The registration is
    /// removed first: the pin of a killed process is then incomplete, and the next call removes it.
    pub(crate) fn remove(&self) -> Result<(), KernelError> {
        for registration in [self.link(), self.map()] {
            match fs::remove_file(&registration) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(error)
                        .context(&format!("cannot remove {}", registration.display()));
                }
                _ => {}
            }
        }
        match fs::remove_dir_all(&self.directory) {
            Ok(()) => debug!(directory = %self.directory.display(), "pin removed"),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            removed => {
                removed.context(&format!("cannot remove {}", self.directory.display()))?;
            }
        }
        let above = Path::new(BPFFS).join("skyhop");
        match fs::remove_dir(&above) {
            // Other modules are still loaded.
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => Ok(()),
            removed => removed.context(&format!("cannot remove {}", above.display())),
        }
    }
}

/// Remove what killed processes have left between the first and the last pin of a module, unless another process is
/// loading or unloading, or this user may not. `offered` are the names that the kernel offers.
pub(crate) fn clean_up(offered: &[String]) {
    let incomplete = || {
        let pins = Pin::all().unwrap_or_default();
        pins.into_iter().filter(|pin| !pin.is_complete(offered)).collect::<Vec<_>>()
    };
    if incomplete().is_empty() {
        return;
    }
    let directory = File::open(BPFFS).ok();
    let alone = directory.map(|place| Flock::lock(place, FlockArg::LockExclusiveNonblock));
    if let Some(Ok(_alone)) = alone {
        for pin in incomplete() {
            match pin.remove() {
                Ok(()) => info!(kernel_name = pin.kernel_name, "half-loaded module removed"),
                Err(error) => debug!(kernel_name = pin.kernel_name, %error, "pin not removed"),
            }
        }
    }
}

/// Take the lock that serialises `cc load` and `cc unload`.
pub(crate) fn lock() -> Result<Flock<File>, KernelError> {
    let directory = File::open(BPFFS).context(&format!("cannot open {BPFFS}"))?;
    Flock::lock(directory, FlockArg::LockExclusive)
        .map_err(|(_, error)| error)
        .context(&format!("cannot lock {BPFFS}"))
}
