//! sock_diag(7): what the kernel tells about the TCP sockets of a network namespace.

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

/// linux/sock_diag.h: the groups that hear of the ends of TCP sockets, over IPv4 and IPv6.
const DESTROY_GROUPS: [libc::c_int; 2] = [1, 3];
/// What may wait until it is read: some thousand ends.
const ENDS_BUFFER: usize = 8 << 20;
/// Longer than any message of a dump.
const LONGEST: usize = 1 << 15;

/// A TCP socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpSocket {
    /// Its own address and port; IPv4 also where the socket is one of IPv6.
    pub local: (IpAddr, u16),
    /// Its peer's.
    pub peer: (IpAddr, u16),
    /// Its congestion control; `None` where it was not asked for, or has ended.
    pub cc: Option<String>,
    /// `struct tcp_info`; `None` where it was not asked for, or the socket is but a memory (TIME_WAIT).
    pub info: Option<Vec<u8>>,
}

/// What to ask about sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// Their congestion control.
    CongestionControl,
    /// That, and `struct tcp_info`.
    Everything,
}

/// Asks for the sockets of the network namespace in which it was opened.
#[derive(Debug)]
pub struct SocketDump {
    kernel: OwnedFd,
    answer: Vec<u8>,
}

impl SocketDump {
    /// Opens it in the calling thread's namespace.
    ///
    /// # Errors
    /// The kernel has no sock_diag.
    pub fn open() -> Result<Self, io::Error> {
        Ok(Self { kernel: netlink()?, answer: vec![0; LONGEST] })
    }

    /// Tells `each` of all TCP sockets that there are.
    ///
    /// # Errors
    /// The kernel has no sock_diag for TCP.
    pub fn all(&mut self, ask: Ask, mut each: impl FnMut(TcpSocket)) -> Result<(), io::Error> {
        for family in [AF_INET, AF_INET6] {
            send(self.kernel.as_raw_fd(), &request(family, ask), MsgFlags::empty())?;
            while self.read_some(&mut each)? {}
        }
        Ok(())
    }

    /// Reads a part of the answer; whether there is more.
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

/// Hears of the ends of TCP sockets in the network namespace in which it was opened: of those, too, that lived too
/// short for any dump.
#[derive(Debug)]
pub struct SocketEnds {
    kernel: OwnedFd,
    message: Vec<u8>,
}

impl SocketEnds {
    /// Opens it in the calling thread's namespace.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn open() -> Result<Self, io::Error> {
        let kernel = netlink()?;
        // The kernel sends to those alone that have an address.
        bind(kernel.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
        // Where less is allowed, less is kept.
        let _ = setsockopt(&kernel, RcvBuf, &ENDS_BUFFER);
        for group in DESTROY_GROUPS {
            // SAFETY: the kernel reads the number that is given, whose size it is told.
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
        Ok(Self { kernel, message: vec![0; LONGEST] })
    }

    /// Tells `each` of the sockets that have ended since the last call.
    ///
    /// # Errors
    /// The kernel says what it never says.
    pub fn take(&mut self, mut each: impl FnMut(TcpSocket)) -> Result<(), io::Error> {
        loop {
            let read = recv(self.kernel.as_raw_fd(), &mut self.message, MsgFlags::MSG_DONTWAIT);
            let length = match read {
                Ok(length) => length,
                Err(Errno::EAGAIN) => return Ok(()),
                // Some were lost; the next are there.
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

/// Asks for all TCP sockets of a family, in whatever state, from wherever to wherever.
fn request(family: u8, ask: Ask) -> Vec<u8> {
    let socket_id = match family {
        AF_INET6 => SocketId::new_v6(),
        _ => SocketId::new_v4(),
    };
    let extensions = match ask {
        Ask::CongestionControl => ExtensionFlags::CONG,
        Ask::Everything => ExtensionFlags::CONG | ExtensionFlags::INFO,
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

    /// What the kernel would answer about a socket, and that there are no more.
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
    fn the_end_of_a_short_connection_is_heard_of() {
        let mut ends = match SocketEnds::open() {
            Ok(ends) => ends,
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
        let (begun, mut heard) = (Instant::now(), Vec::new());
        while heard.len() < 2 && begun.elapsed() < Duration::from_secs(60) {
            let ours =
                |socket: &TcpSocket| [socket.local.1, socket.peer.1].contains(&client.port());
            ends.take(|socket| heard.extend(Some(socket).filter(ours))).unwrap();
        }
        let mut ports: Vec<u16> = heard.iter().map(|socket| socket.local.1).collect();
        ports.sort_unstable();
        let mut expected = [client.port(), server.port()];
        expected.sort_unstable();
        assert_eq!(ports, expected, "{heard:?}");
        assert!(heard.iter().all(|socket| socket.info.is_some()), "{heard:?}");
    }
}
