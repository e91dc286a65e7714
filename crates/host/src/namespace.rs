//! Network namespaces without a name, which exist only as long as a descriptor or a process refers to them.

use std::fs::{self, File};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread;

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns, unshare};
use skyhop_model::{BufferSizes, without_numbers};
use tracing::{debug, warn};

use crate::error::{Context, HostError, namespaces_forbidden};

/// Minimum of tcp_rmem and tcp_wmem, in bytes.
const LEAST_BUFFER: u64 = 4096;
/// sysctl tcp_ecn: whether connections request ECN when they connect. Accepted connections use ECN
/// if the peer requests it.
const TCP_ECN: &str = "net/ipv4/tcp_ecn";
const ECN_REQUESTED: &str = "1";
const ECN_ACCEPTED: &str = "2";

/// TCP settings of a network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpSettings {
    /// Receive buffer sizes: sysctl tcp_rmem.
    pub rmem: BufferSizes,
    /// Send buffer sizes: sysctl tcp_wmem.
    pub wmem: BufferSizes,
    /// Whether timestamps are used: sysctl tcp_timestamps.
    pub timestamps: bool,
    /// Whether SACK is used: sysctl tcp_sack.
    pub sack: bool,
    /// Whether connections of programs request ECN: sysctl tcp_ecn.
    pub ecn: bool,
}

impl Default for TcpSettings {
    fn default() -> Self {
        let (rmem, wmem) = (BufferSizes::RMEM, BufferSizes::WMEM);
        Self { rmem, wmem, timestamps: true, sack: true, ecn: false }
    }
}

/// Handle of a network namespace.
#[derive(Debug)]
pub struct NetNamespace {
    handle: File,
    /// Whether tcp_ecn is set to request ECN at present; locked during a connect, see
    /// [`Self::connect_with_ecn`].
    requests_ecn: Mutex<bool>,
}

impl NetNamespace {
    /// Create an empty namespace; the calling thread does not enter it.
    pub fn create() -> Result<Self, HostError> {
        let made = on_own_thread(|| -> Result<Self, HostError> {
            unshare(CloneFlags::CLONE_NEWNET).map_err(|errno| match errno {
                Errno::EPERM | Errno::ENOSPC | Errno::EUSERS => namespaces_forbidden(errno),
                _ => HostError::System {
                    action: "cannot create a network namespace".to_owned(),
                    reason: errno.desc().to_owned(),
                },
            })?;
            Self::open(Path::new("/proc/thread-self/ns/net"))
        })?;
        debug!(inode = made.inode(), "network namespace created");
        Ok(made)
    }

    /// Number by which `lsns` lists the namespace; zero if it cannot be read.
    fn inode(&self) -> u64 {
        self.handle.metadata().map_or(0, |metadata| metadata.ino())
    }

    /// Open an existing namespace by its file: `/run/netns/NAME` or `/proc/PID/ns/net`.
    pub fn open(path: &Path) -> Result<Self, HostError> {
        let handle = File::open(path)
            .context(&format!("cannot open the network namespace {}", path.display()))?;
        Ok(Self { handle, requests_ecn: Mutex::new(false) })
    }

    /// Move the calling thread into this namespace; threads and processes that it starts later inherit it.
    pub fn enter(&self) -> Result<(), HostError> {
        setns(&self.handle, CloneFlags::CLONE_NEWNET).context("cannot enter a network namespace")
    }

    /// Run `work` inside the namespace on another thread; the calling thread does not move.
    pub fn inside<T: Send, E: From<HostError> + Send>(
        &self,
        work: impl FnOnce() -> Result<T, E> + Send,
    ) -> Result<T, E> {
        on_own_thread(|| {
            self.enter()?;
            work()
        })
    }

    /// Run `connect`, which sends a SYN, with or without requesting ECN. The calling thread must have entered the
    /// namespace. Linux has no such socket option, so tcp_ecn is set for each connect and connects are serialised.
    ///
    /// # Errors
    /// tcp_ecn cannot be written.
    pub fn connect_with_ecn<T>(
        &self,
        ecn: bool,
        connect: impl FnOnce() -> T,
    ) -> Result<T, HostError> {
        let mut current = self.requests_ecn.lock().unwrap_or_else(PoisonError::into_inner);
        if *current != ecn {
            fs::write(format!("/proc/sys/{TCP_ECN}"), ecn_value(ecn))
                .context("cannot set tcp_ecn")?;
            *current = ecn;
        }
        Ok(connect())
    }

    /// Set the TCP and IP settings of the namespace; return a warning for each setting that the kernel refused.
    pub fn tune(&self, tcp: &TcpSettings) -> Result<Vec<String>, HostError> {
        let sizes = |BufferSizes { initial, max }: BufferSizes| {
            format!("{LEAST_BUFFER} {} {}", initial.as_u64(), max.as_u64())
        };
        let (rmem, wmem) = (sizes(tcp.rmem), sizes(tcp.wmem));
        let switch = |on: bool| if on { "1" } else { "0" };
        let ipv6 = "to turn IPv6 off";
        let settings = [
            ("net/ipv6/conf/all/disable_ipv6", "1", ipv6),
            ("net/ipv6/conf/default/disable_ipv6", "1", ipv6),
            ("net/ipv4/tcp_rmem", &rmem, "the sizes of receive buffers"),
            ("net/ipv4/tcp_wmem", &wmem, "the sizes of send buffers"),
            ("net/ipv4/tcp_timestamps", switch(tcp.timestamps), "the setting of TCP timestamps"),
            ("net/ipv4/tcp_sack", switch(tcp.sack), "the setting of SACK"),
            ("net/ipv4/tcp_no_metrics_save", "1", "to keep no values of earlier connections"),
            (TCP_ECN, ecn_value(tcp.ecn), "the setting of ECN"),
        ];
        *self.requests_ecn.lock().unwrap_or_else(PoisonError::into_inner) = tcp.ecn;
        self.inside(|| {
            let refused = |(name, value, what)| set(name, value, what);
            Ok(settings.into_iter().filter_map(refused).collect())
        })
    }
}

fn ecn_value(requested: bool) -> &'static str {
    if requested { ECN_REQUESTED } else { ECN_ACCEPTED }
}

/// Set a sysctl of the calling thread's namespace; return a warning if the kernel refused `what` it is for.
fn set(name: &str, value: &str, what: &str) -> Option<String> {
    let file = format!("/proc/sys/{name}");
    // On a kernel without IPv6 there is nothing to disable.
    if name.starts_with("net/ipv6/") && !fs::exists(&file).unwrap_or(false) {
        return None;
    }
    let Err(error) = fs::write(&file, value) else {
        debug!(name, value, "sysctl set");
        return None;
    };
    warn!(name, value, %error, "sysctl refused");
    Some(format!(
        "the kernel refused {what}, so that the run has the kernel's default: {}",
        without_numbers(&error.to_string())
    ))
}

/// Logs the end of this process's handle; the kernel removes the namespace with its last user.
impl Drop for NetNamespace {
    fn drop(&mut self) {
        debug!(inode = self.inode(), "network namespace released");
    }
}

impl AsFd for NetNamespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

fn on_own_thread<T: Send, E: From<HostError> + Send>(
    work: impl FnOnce() -> Result<T, E> + Send,
) -> Result<T, E> {
    thread::scope(|scope| scope.spawn(work).join()).unwrap_or_else(|_| {
        let panicked = HostError::System {
            action: "cannot set up a network namespace".to_owned(),
            reason: "a thread of the engine panicked".to_owned(),
        };
        Err(panicked.into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_setting_is_named_in_words() {
        assert_eq!(
            set("net/ipv4/no_such_setting", "1", "the setting of SACK").as_deref(),
            Some(
                "the kernel refused the setting of SACK, so that the run has the kernel's default: No such file or \
                 directory"
            )
        );
        assert_eq!(set("net/ipv6/no_such_setting", "1", "to turn IPv6 off"), None);
    }
}
