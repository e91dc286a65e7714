//! How many sockets use which congestion control, by sock_diag(7), and which namespace is which.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::thread;

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};

/// The size of a netlink message's header.
const HEADER: usize = 16;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// linux/sock_diag.h
const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// The attribute with the congestion control's name (linux/inet_diag.h).
const INET_DIAG_CONG: u16 = 4;
/// What stands before the attributes of one socket, `struct inet_diag_msg`.
const INET_DIAG_MSG: usize = 72;
/// `struct inet_diag_req_v2`.
const INET_DIAG_REQUEST: usize = 56;

/// The number of TCP sockets by congestion control, in all network namespaces that this process may
/// look into: its own, and where it may enter them those of the processes in /proc.
///
/// # Errors
/// The kernel has no sock_diag for TCP.
pub fn sockets_by_cc() -> Result<BTreeMap<String, u64>, io::Error> {
    let mut counts = BTreeMap::new();
    count_here(&mut counts)?;
    for namespace in other_namespaces() {
        // A namespace that is refused, or has just ended, is one that cannot be seen.
        if let Ok(Some(there)) = count_in(&namespace) {
            there.into_iter().for_each(|(name, count)| *counts.entry(name).or_default() += count);
        }
    }
    Ok(counts)
}

/// The cookie of the calling thread's network namespace.
///
/// # Errors
/// The kernel (before 5.14) does not say.
pub fn netns_cookie() -> Result<u64, io::Error> {
    let socket = UdpSocket::bind("127.0.0.1:0").or_else(|_| UdpSocket::bind("0.0.0.0:0"))?;
    let mut cookie = 0_u64;
    let mut size = size_of_val(&cookie) as libc::socklen_t;
    // SAFETY: the kernel writes at most `size` bytes, which is what `cookie` has.
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

/// asm-generic/socket.h
const SO_NETNS_COOKIE: libc::c_int = 71;

/// One handle for each network namespace of /proc's processes but the calling thread's.
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
    // Only this thread moves there.
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
    for family in [libc::AF_INET, libc::AF_INET6] {
        let kernel = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkSockDiag,
        )?;
        send(kernel.as_raw_fd(), &request(family as u8), MsgFlags::empty())?;
        read_dump(&kernel, counts)?;
    }
    Ok(())
}

/// Asks for all TCP sockets of a family with their congestion control.
fn request(family: u8) -> Vec<u8> {
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;
    let mut message = Vec::new();
    message.extend(((HEADER + INET_DIAG_REQUEST) as u32).to_ne_bytes());
    message.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend([0; 8]);
    message.extend([family, libc::IPPROTO_TCP as u8, 1 << (INET_DIAG_CONG - 1), 0]);
    // In whatever state, from wherever to wherever.
    message.extend(u32::MAX.to_ne_bytes());
    message.resize(HEADER + INET_DIAG_REQUEST, 0);
    message
}

fn read_dump(kernel: &OwnedFd, counts: &mut BTreeMap<String, u64>) -> Result<(), io::Error> {
    let mut answer = vec![0; 1 << 15];
    loop {
        let length = recv(kernel.as_raw_fd(), &mut answer, MsgFlags::empty())?;
        let mut rest = &answer[..length];
        while let Some((kind, body, next)) = split_message(rest) {
            match kind {
                NLMSG_DONE => return Ok(()),
                NLMSG_ERROR => return Err(io::ErrorKind::Unsupported.into()),
                _ => {
                    if let Some(name) = congestion_control(body) {
                        *counts.entry(name).or_default() += 1;
                    }
                }
            }
            rest = next;
        }
    }
}

/// The first message's kind and body, and what is behind it.
fn split_message(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = u32::from_ne_bytes(*bytes.first_chunk()?) as usize;
    let kind = u16::from_ne_bytes(*bytes.get(4..)?.first_chunk()?);
    let body = bytes.get(HEADER..length)?;
    Some((kind, body, bytes.get(length.next_multiple_of(4)..).unwrap_or_default()))
}

fn congestion_control(socket: &[u8]) -> Option<String> {
    let mut attributes = socket.get(INET_DIAG_MSG..)?;
    loop {
        let length = usize::from(u16::from_ne_bytes(*attributes.first_chunk()?));
        let kind = u16::from_ne_bytes(*attributes.get(2..)?.first_chunk()?);
        let value = attributes.get(4..length)?;
        if kind == INET_DIAG_CONG {
            let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
            return String::from_utf8(value[..end].to_vec()).ok();
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

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
        // Other tests open and close sockets at the same time, but not hundreds of them.
        let before = total().unwrap();
        let sockets: Vec<TcpListener> =
            (0..200).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let during = total().unwrap();
        assert!(during >= before + 150, "{before} before, {during} during");
        drop(sockets);
        assert!(total().unwrap() + 150 <= during);
    }

    #[test]
    fn a_socket_without_a_name_is_passed_over() {
        assert_eq!(congestion_control(&[0; INET_DIAG_MSG]), None);
        let mut socket = vec![0; INET_DIAG_MSG];
        socket.extend([7_u16.to_ne_bytes(), 3_u16.to_ne_bytes()].concat());
        socket.extend([1, 2, 3, 0]);
        socket.extend([10_u16.to_ne_bytes(), INET_DIAG_CONG.to_ne_bytes()].concat());
        socket.extend(b"cubic\0\0\0");
        assert_eq!(congestion_control(&socket).as_deref(), Some("cubic"));
    }
}
