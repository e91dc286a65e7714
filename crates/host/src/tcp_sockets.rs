//! The TCP sockets of a network namespace, whoever opened them.

use std::net::IpAddr;

use skyhop_kernel::{Ask, SocketDump, SocketEnds};

use crate::error::{Context, HostError};
use crate::namespace::NetNamespace;
use crate::tcp_info::TcpInfo;

/// A socket that is connected to another machine, or was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Socket {
    /// Its own address and port.
    pub local: (IpAddr, u16),
    /// Its peer's.
    pub peer: (IpAddr, u16),
    /// Its congestion control; `None` of one that has ended.
    pub cc: Option<String>,
    /// What the kernel tells about it.
    pub info: TcpInfo,
    /// Whether it has ended.
    pub ended: bool,
}

/// Looks at a namespace's sockets from outside.
#[derive(Debug)]
pub struct SocketWatch {
    dump: SocketDump,
    /// `None` where the kernel does not tell of ends.
    ends: Option<SocketEnds>,
}

impl SocketWatch {
    /// Looks into a namespace.
    ///
    /// # Errors
    /// The kernel has no sock_diag(7) for TCP.
    pub fn open(namespace: &NetNamespace) -> Result<Self, HostError> {
        namespace.inside(|| {
            let mut dump = SocketDump::open().context("cannot look at sockets")?;
            dump.all(Ask::Everything, |_| {}).context("cannot look at sockets")?;
            Ok(Self { dump, ends: SocketEnds::open().ok() })
        })
    }

    /// The sockets that have ended since the last call, and then those that there are.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub fn look(&mut self) -> Result<Vec<Socket>, HostError> {
        let mut found = self.ended()?;
        let there = self.dump.all(Ask::Everything, |socket| found.extend(connected(socket, false)));
        there.context("cannot look at sockets")?;
        Ok(found)
    }

    /// The sockets that have ended since the last call of this or of `look`.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub fn ended(&mut self) -> Result<Vec<Socket>, HostError> {
        let mut found = Vec::new();
        if let Some(ends) = &mut self.ends {
            ends.take(|socket| found.extend(connected(socket, true)))
                .context("cannot look at sockets that have ended")?;
        }
        Ok(found)
    }
}

/// A socket that has, or had, a peer on another machine; TIME_WAIT is a memory of one.
fn connected(socket: skyhop_kernel::TcpSocket, ended: bool) -> Option<Socket> {
    let info = TcpInfo::from_bytes(&socket.info?);
    let elsewhere = |address: IpAddr| !address.is_loopback() && !address.is_unspecified();
    let is_connected = elsewhere(socket.local.0) && elsewhere(socket.peer.0) && socket.peer.1 != 0;
    is_connected.then_some(Socket {
        local: socket.local,
        peer: socket.peer,
        cc: socket.cc,
        info,
        ended,
    })
}
