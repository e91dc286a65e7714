//! TCP sockets of a network namespace, by sock_diag(7).

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use netlink_packet_sock_diag::SockDiagMessage;
use netlink_packet_sock_diag::constants::{AF_INET, AF_INET6, IPPROTO_TCP};
use netlink_packet_sock_diag::inet::nlas::Nla;
use netlink_packet_sock_diag::inet::{
    ExtensionFlags, InetRequest, InetResponse, SocketId, StateFlags,
};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send,
    setsockopt, socket, sockopt::RcvBuf,
};

/// Multicast groups of destroyed TCP sockets over IPv4 and IPv6 (linux/sock_diag.h: SKNLGRP_INET_TCP_DESTROY,
/// SKNLGRP_INET6_TCP_DESTROY).
const DESTROY_GROUPS: [libc::c_int; 2] = [1, 3];
/// Receive buffer for destroy events, in bytes: several thousand events.
const DESTROY_BUFFER: usize = 8 << 20;
/// Buffer for one read, in bytes: larger than any message of a dump.
const MESSAGE_BUFFER: usize = 1 << 15;

/// TCP socket as the kernel reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpSocket {
    /// Local address and port; IPv4-mapped addresses of IPv6 sockets are converted to IPv4.
    pub local: (IpAddr, u16),
    /// Address and port of the peer.
    pub peer: (IpAddr, u16),
    /// Name of the congestion control; `None` if it was not requested, or for a destroyed socket.
    pub cc: Option<String>,
    /// Bytes of `struct tcp_info`; `None` if it was not requested, or in TIME_WAIT.
    pub info: Option<Vec<u8>>,
}

/// Attributes to request of each socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketDetail {
    /// Name of the congestion control only.
    CongestionControl,
    /// Congestion control and `struct tcp_info`.
    Full,
}

/// Netlink socket that dumps the TCP sockets of the network namespace in which it was opened.
#[derive(Debug)]
pub struct SocketDump {
    kernel: OwnedFd,
    answer: Vec<u8>,
}

impl SocketDump {
    /// Open the netlink socket in the calling thread's namespace.
    ///
    /// # Errors
    /// The kernel does not support sock_diag.
    pub fn open() -> Result<Self, io::Error> {
        Ok(Self { kernel: netlink()?, answer: vec![0; MESSAGE_BUFFER] })
    }

    /// Call `each` for every TCP socket.
    ///
    /// # Errors
    /// The kernel does not support sock_diag for TCP.
    pub fn all(
        &mut self,
        detail: SocketDetail,
        mut each: impl FnMut(TcpSocket),
    ) -> Result<(), io::Error> {
        for family in [AF_INET, AF_INET6] {
            send(self.kernel.as_raw_fd(), &request(family, detail), MsgFlags::empty())?;
            while self.read_some(&mut each)? {}
        }
        Ok(())
    }

    /// Read a part of the dump; return whether more parts follow.
    fn read_some(&mut self, each: &mut impl FnMut(TcpSocket)) -> Result<bool, io::Error> {
        let length = recv(self.kernel.as_raw_fd(), &mut self.answer, MsgFlags::empty())?;
        let mut more = true;
        for_each_message(&self.answer[..length], |payload| {
            match payload {
                NetlinkPayload::Done(_) => more = false,
                NetlinkPayload::Error(_) => return Err(io::ErrorKind::Unsupported.into()),
                NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(socket)) => {
                    each(TcpSocket::from(*socket));
                }
                _ => {}
            }
            Ok(())
        })?;
        Ok(more)
    }
}

/// Netlink socket that receives destroy events of TCP sockets in the network namespace in which it was opened,
/// including sockets that lived too briefly for any dump.
#[derive(Debug)]
pub struct DestroyEvents {
    kernel: OwnedFd,
    message: Vec<u8>,
}

impl DestroyEvents {
    /// Open the netlink socket in the calling thread's namespace.
    ///
    /// # Errors
    /// The kernel does not provide destroy events.
    pub fn open() -> Result<Self, io::Error> {
        let kernel = netlink()?;
        // The kernel sends multicasts only to bound sockets.
        bind(kernel.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
        // An error is ignored: with a smaller buffer, only more events are lost in bursts.
        let _ = setsockopt(&kernel, RcvBuf, &DESTROY_BUFFER);
        for group in DESTROY_GROUPS {
            // SAFETY: the kernel reads `group`, whose size is passed and which lives for the call.
            let joined = unsafe {
                libc::setsockopt(
                    kernel.as_raw_fd(),
                    libc::SOL_NETLINK,
                    libc::NETLINK_ADD_MEMBERSHIP,
                    (&raw const group).cast(),
                    size_of_val(&group) as libc::socklen_t,
                )
            };
            Errno::result(joined)?;
        }
        Ok(Self { kernel, message: vec![0; MESSAGE_BUFFER] })
    }

    /// Call `each` for every socket destroyed since the last call.
    ///
    /// # Errors
    /// The kernel's message cannot be parsed.
    pub fn read(&mut self, mut each: impl FnMut(TcpSocket)) -> Result<(), io::Error> {
        loop {
            let read = recv(self.kernel.as_raw_fd(), &mut self.message, MsgFlags::MSG_DONTWAIT);
            let length = match read {
                Ok(length) => length,
                Err(Errno::EAGAIN) => return Ok(()),
                // ENOBUFS: some events were lost; later ones can be read.
                Err(Errno::ENOBUFS | Errno::EINTR) => continue,
                Err(error) => return Err(error.into()),
            };
            for_each_message(&self.message[..length], |payload| {
                if let NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(socket)) = payload
                {
                    each(TcpSocket::from(*socket));
                }
                Ok(())
            })?;
        }
    }
}

fn netlink() -> Result<OwnedFd, io::Error> {
    let flags = SockFlag::SOCK_CLOEXEC;
    Ok(socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkSockDiag)?)
}

/// Encode a dump request for all TCP sockets of an address family, in all states.
fn request(family: u8, detail: SocketDetail) -> Vec<u8> {
    let socket_id = match family {
        AF_INET6 => SocketId::new_v6(),
        _ => SocketId::new_v4(),
    };
    let extensions = match detail {
        SocketDetail::CongestionControl => ExtensionFlags::CONG,
        SocketDetail::Full => ExtensionFlags::CONG | ExtensionFlags::INFO,
    };
    let mut message = NetlinkMessage::from(SockDiagMessage::InetRequest(InetRequest {
        family,
        protocol: IPPROTO_TCP,
        extensions,
        states: StateFlags::all(),
        socket_id,
    }));
    message.header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

fn for_each_message(
    mut rest: &[u8],
    mut each: impl FnMut(NetlinkPayload<SockDiagMessage>) -> Result<(), io::Error>,
) -> Result<(), io::Error> {
    while !rest.is_empty() {
        let message = NetlinkMessage::<SockDiagMessage>::deserialize(rest)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
        rest = rest.get((message.header.length as usize).next_multiple_of(4)..).unwrap_or(&[]);
        each(message.payload)?;
    }
    Ok(())
}

impl From<InetResponse> for TcpSocket {
    fn from(response: InetResponse) -> Self {
        let id = &response.header.socket_id;
        let local = (id.source_address.to_canonical(), id.source_port);
        let peer = (id.destination_address.to_canonical(), id.destination_port);
        let (mut cc, mut info) = (None, None);
        for attribute in response.nlas {
            match attribute {
                Nla::Congestion(name) => cc = Some(name),
                Nla::TcpInfo(bytes) => info = Some(bytes),
                _ => {}
            }
        }
        Self { local, peer, cc, info }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use super::*;

    /// Dump of one socket, followed by NLMSG_DONE.
    fn answer() -> Vec<u8> {
        let mut response = netlink_packet_sock_diag::inet::InetResponse {
            header: netlink_packet_sock_diag::inet::InetResponseHeader {
                family: AF_INET,
                state: 1,
                timer: None,
                socket_id: SocketId::new_v4(),
                recv_queue: 0,
                send_queue: 0,
                uid: 0,
                inode: 7,
            },
            nlas: Default::default(),
        };
        response.nlas.push(Nla::Congestion("cubic".to_owned()));
        response.nlas.push(Nla::TcpInfo(vec![7; 232]));
        let mut message = NetlinkMessage::from(SockDiagMessage::InetResponse(Box::new(response)));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        // NLMSG_DONE.
        bytes.extend([20, 0, 0, 0, 3, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        bytes
    }

    #[test]
    fn damaged_answers_are_refused_or_read() {
        skyhop_needs::fuzz::Trial::of_bytes("inet_diag", [answer()]).run(|bytes| {
            for_each_message(bytes, |payload| {
                if let NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(socket)) = payload
                {
                    drop(TcpSocket::from(*socket));
                }
                Ok(())
            })
        });
    }

    #[test]
    fn destroy_events_include_short_connections() {
        let mut events = match DestroyEvents::open() {
            Ok(events) => events,
            Err(error) => return skyhop_needs::missing("kernel", format!("no sock_diag: {error}")),
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap();
        let mut near = TcpStream::connect(server).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.write_all(&[7; 1000]).unwrap();
        near.shutdown(std::net::Shutdown::Write).unwrap();
        far.read_to_end(&mut Vec::new()).unwrap();
        let client = near.local_addr().unwrap();
        drop((near, far));
        let (begun, mut destroyed) = (Instant::now(), Vec::new());
        while destroyed.len() < 2 && begun.elapsed() < Duration::from_secs(60) {
            let ours =
                |socket: &TcpSocket| [socket.local.1, socket.peer.1].contains(&client.port());
            events.read(|socket| destroyed.extend(Some(socket).filter(ours))).unwrap();
        }
        let mut ports: Vec<u16> = destroyed.iter().map(|socket| socket.local.1).collect();
        ports.sort_unstable();
        let mut expected = [client.port(), server.port()];
        expected.sort_unstable();
        assert_eq!(ports, expected, "{destroyed:?}");
        assert!(destroyed.iter().all(|socket| socket.info.is_some()), "{destroyed:?}");
    }
}
