//! Number of sockets per congestion control, by sock_diag(7), and cookies of network namespaces.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::thread;

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns};

use crate::sock_diag::{SocketDetail, SocketDump};

/// Count TCP sockets by congestion control, in all network namespaces that this process may enter: its own, and
/// those of the processes in /proc.
///
/// # Errors
/// The kernel has no sock_diag for TCP.
pub fn sockets_by_cc() -> Result<BTreeMap<String, u64>, io::Error> {
    let mut counts = BTreeMap::new();
    count_here(&mut counts)?;
    for namespace in other_namespaces() {
        // Namespaces that this process may not enter, or that have just ended, are skipped.
        if let Ok(Some(there)) = count_in(&namespace) {
            there.into_iter().for_each(|(name, count)| *counts.entry(name).or_default() += count);
        }
    }
    Ok(counts)
}

/// Cookie of the calling thread's network namespace (SO_NETNS_COOKIE).
///
/// # Errors
/// The kernel is older than 5.14 and has no such option.
pub fn netns_cookie() -> Result<u64, io::Error> {
    let socket = UdpSocket::bind("127.0.0.1:0").or_else(|_| UdpSocket::bind("0.0.0.0:0"))?;
    let mut cookie = 0_u64;
    let mut size = size_of_val(&cookie) as libc::socklen_t;
    // SAFETY: the kernel writes at most `size` bytes, the size of `cookie`.
    let got = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut size,
        )
    };
    Errno::result(got).map(|_| cookie).map_err(io::Error::from)
}

/// Socket option of asm-generic/socket.h, which libc does not define.
const SO_NETNS_COOKIE: libc::c_int = 71;

/// Open each network namespace of the processes in /proc once, except that of the calling thread.
fn other_namespaces() -> Vec<File> {
    let own = fs::metadata("/proc/thread-self/ns/net").map(|own| own.ino()).ok();
    let mut seen: BTreeSet<u64> = own.into_iter().collect();
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    processes
        .filter_map(|process| {
            let namespace = process.ok()?.path().join("ns/net");
            let inode = fs::metadata(&namespace).ok()?.ino();
            seen.insert(inode).then(|| File::open(namespace).ok()).flatten()
        })
        .collect()
}

fn count_in(namespace: &File) -> Result<Option<BTreeMap<String, u64>>, io::Error> {
    // Only the new thread enters the namespace.
    let counting = || {
        if setns(namespace, CloneFlags::CLONE_NEWNET).is_err() {
            return Ok(None);
        }
        let mut counts = BTreeMap::new();
        count_here(&mut counts).map(|()| Some(counts))
    };
    thread::scope(|scope| scope.spawn(counting).join()).unwrap_or(Ok(None))
}

fn count_here(counts: &mut BTreeMap<String, u64>) -> Result<(), io::Error> {
    SocketDump::open()?.all(SocketDetail::CongestionControl, |socket| {
        if let Some(name) = socket.cc {
            *counts.entry(name).or_default() += 1;
        }
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use nix::sched::{CloneFlags, unshare};

    use super::*;

    fn total() -> Result<u64, io::Error> {
        sockets_by_cc().map(|counts| counts.values().sum())
    }

    #[test]
    fn a_socket_more_is_counted() {
        if let Err(error) = total() {
            skyhop_needs::missing("kernel", format!("no sock_diag: {error}"));
            return;
        }
        // Other processes open and close sockets at the same time, but not in this namespace.
        if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
            skyhop_needs::missing("root", format!("no network namespace: {error}"));
            return;
        }
        let before = total().unwrap();
        let sockets: Vec<TcpListener> =
            (0..200).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let during = total().unwrap();
        assert_eq!(during, before + 200);
        drop(sockets);
        assert_eq!(total().unwrap(), before);
    }
}
