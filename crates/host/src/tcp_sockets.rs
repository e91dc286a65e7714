//! TCP sockets of all processes in a network namespace.

use std::net::IpAddr;

use skyhop_kernel::{DestroyEvents, SocketDetail, SocketDump};

use crate::error::{Context, HostError};
use crate::namespace::NetNamespace;
use crate::tcp_info::TcpInfo;

/// TCP socket that is, or was, connected to another host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Socket {
    /// Local address and port.
    pub local: (IpAddr, u16),
    /// Address and port of the peer.
    pub peer: (IpAddr, u16),
    /// Congestion control; `None` for a destroyed socket.
    pub cc: Option<String>,
    /// Kernel's TCP_INFO of the socket.
    pub info: TcpInfo,
    /// Whether the kernel has destroyed the socket.
    pub ended: bool,
}

/// Observer of a namespace's sockets, by sock_diag(7).
#[derive(Debug)]
pub struct SocketWatch {
    dump: SocketDump,
    /// Reports of destroyed sockets; `None` if the kernel does not provide them.
    ends: Option<DestroyEvents>,
}

impl SocketWatch {
    /// Open an observer of a namespace.
    ///
    /// # Errors
    /// The kernel does not support sock_diag(7) for TCP.
    pub fn open(namespace: &NetNamespace) -> Result<Self, HostError> {
        namespace.inside(|| {
            let mut dump = SocketDump::open().context("cannot list sockets")?;
            dump.all(SocketDetail::Full, |_| {}).context("cannot list sockets")?;
            Ok(Self { dump, ends: DestroyEvents::open().ok() })
        })
    }

    /// Return the sockets destroyed since the last call, followed by the existing ones.
    ///
    /// # Errors
    /// The kernel does not answer the request.
    pub fn snapshot(&mut self) -> Result<Vec<Socket>, HostError> {
        let mut found = self.take_destroyed()?;
        let there =
            self.dump.all(SocketDetail::Full, |socket| found.extend(connected(socket, false)));
        there.context("cannot list sockets")?;
        Ok(found)
    }

    /// Return the sockets destroyed since the last call of this or [`Self::snapshot`].
    ///
    /// # Errors
    /// The kernel does not answer the request.
    pub fn take_destroyed(&mut self) -> Result<Vec<Socket>, HostError> {
        let mut found = Vec::new();
        if let Some(ends) = &mut self.ends {
            ends.read(|socket| found.extend(connected(socket, true)))
                .context("cannot read the reports of closed sockets")?;
        }
        Ok(found)
    }
}

/// Convert a socket whose peer is on another host; `None` for others, and for sockets without TCP_INFO (TIME_WAIT).
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
