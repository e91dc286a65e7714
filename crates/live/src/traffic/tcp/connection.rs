//! One end of a TCP connection: its socket and the application's pending writes.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::socket::{self, MsgFlags, Shutdown, SockaddrIn, sockopt};
use skyhop_app::{Action, Event, Reader};
use skyhop_host::error::{Context, HostError};
use skyhop_units::{Bytes, Instant};

/// Largest size of one send(2), in bytes.
const CHUNK: usize = 256 * 1024;
/// Largest size of one recv(2), in bytes.
const DISCARD: usize = 4 << 20;

/// Payload of all writes: zeros.
#[derive(Debug)]
pub(super) struct Zeros(Vec<u8>);

impl Default for Zeros {
    fn default() -> Self {
        Self(vec![0; CHUNK])
    }
}

/// One end of a TCP connection. Any socket error means that the connection is lost.
#[derive(Debug)]
pub(super) struct Connection {
    socket: Arc<OwnedFd>,
    connecting: bool,
    /// Remaining bytes of each pending write of the application, the oldest first; writes are not merged.
    writes: VecDeque<u64>,
    writes_without_end: bool,
    finish: Finish,
    reader: Reader,
    read: Bytes,
    peer_finished: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Finish {
    NotYet,
    Requested,
    Done,
}

impl Connection {
    /// Create a connection whose handshake has begun.
    pub(super) fn connecting(socket: Arc<OwnedFd>, reader: Reader) -> Self {
        Self { connecting: true, ..Self::established(socket, reader) }
    }

    /// Create a connection that is established.
    pub(super) fn established(socket: Arc<OwnedFd>, reader: Reader) -> Self {
        Self {
            socket,
            connecting: false,
            writes: VecDeque::new(),
            writes_without_end: false,
            finish: Finish::NotYet,
            reader,
            read: Bytes::ZERO,
            peer_finished: false,
        }
    }

    pub(super) fn socket(&self) -> &Arc<OwnedFd> {
        &self.socket
    }

    pub(super) fn is_connecting(&self) -> bool {
        self.connecting
    }

    /// Length of the received stream, once the peer has finished it.
    pub(super) fn stream_length(&self) -> Option<Bytes> {
        self.peer_finished.then_some(self.read)
    }

    /// Whether writes or the FIN are pending.
    pub(super) fn has_unwritten(&self) -> bool {
        !self.writes.is_empty() || self.writes_without_end || self.finish == Finish::Requested
    }

    /// Whether both ends have sent a FIN.
    pub(super) fn is_over(&self) -> bool {
        self.peer_finished && self.finish == Finish::Done
    }

    /// Clear SO_LINGER, so that the kernel delivers queued data and a FIN when the socket is closed, not a reset.
    pub(super) fn deliver_when_closed(&self) -> Result<(), HostError> {
        let delivers = libc::linger { l_onoff: 0, l_linger: 0 };
        socket::setsockopt(&self.socket, sockopt::Linger, &delivers)
            .context("cannot close a flow's connection")
    }

    // --- waiting ---

    /// Socket events to wait for with poll(2); `None` if there are no events to wait for now.
    pub(super) fn poll_events(&self, now: Instant) -> Option<(BorrowedFd<'_>, PollFlags)> {
        let reads =
            !self.connecting && !self.peer_finished && self.reads_at().is_none_or(|at| at <= now);
        let mut events = PollFlags::empty();
        events.set(PollFlags::POLLIN, reads);
        events.set(PollFlags::POLLOUT, self.connecting || self.has_unwritten());
        (!events.is_empty()).then_some((self.socket.as_fd(), events))
    }

    /// Time of the next action that does not depend on the socket: the next read of a rate-limited reader.
    pub(super) fn next(&self, now: Instant) -> Instant {
        let reads = !self.connecting && !self.peer_finished;
        self.reads_at().filter(|at| reads && *at > now).unwrap_or(Instant::NEVER)
    }

    /// Time of the next read of a rate-limited reader; `None` if it may read at once.
    fn reads_at(&self) -> Option<Instant> {
        self.reader.next(Bytes::new(1))
    }

    // --- from the socket ---

    /// Poll the socket; return at most one event.
    pub(super) fn poll(&mut self, now: Instant) -> Result<Option<Event>, Errno> {
        if self.connecting {
            return self.poll_handshake();
        }
        let most = self.readable(now)?;
        if most == 0 {
            return Ok(None);
        }
        match discard(&self.socket, most) {
            Ok(0) => {
                self.peer_finished = true;
                Ok(Some(Event::PeerFinished))
            }
            Ok(length) => {
                let length = Bytes::new(length as u64);
                self.read += length;
                Ok(Some(Event::Received(length)))
            }
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn poll_handshake(&mut self) -> Result<Option<Event>, Errno> {
        let failed = socket::getsockopt(&self.socket, sockopt::SocketError)?;
        if failed != 0 {
            return Err(Errno::from_raw(failed));
        }
        match socket::getpeername::<SockaddrIn>(self.socket.as_raw_fd()) {
            Ok(_) => {
                self.connecting = false;
                Ok(Some(Event::Connected))
            }
            Err(Errno::ENOTCONN) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Number of bytes that the reader may read now.
    fn readable(&mut self, now: Instant) -> Result<usize, Errno> {
        if self.peer_finished || self.reads_at().is_some_and(|at| at > now) {
            return Ok(0);
        }
        if self.reader.is_fast() {
            return Ok(DISCARD);
        }
        match unread(&self.socket)? {
            // Only a read reveals a FIN or an error.
            Bytes::ZERO => Ok(1),
            unread => Ok(self.reader.take(now, unread).as_u64() as usize),
        }
    }

    /// Discard received data after the flow's end; return whether more may come.
    pub(super) fn discards_more(&self) -> bool {
        match discard(&self.socket, DISCARD) {
            Ok(length) => length > 0,
            Err(error) => matches!(error, Errno::EAGAIN | Errno::EINTR),
        }
    }

    // --- to the socket ---

    /// Apply an action of the application to this connection.
    pub(super) fn apply(&mut self, action: Action) {
        match action {
            Action::Write(bytes) => self.writes.push_back(bytes.as_u64()),
            Action::WriteWithoutEnd => self.writes_without_end = true,
            Action::Pause => self.writes_without_end = false,
            Action::Finish => (self.writes_without_end, self.finish) = (false, Finish::Requested),
            // These actions do not concern an existing connection's stream.
            Action::Connect
            | Action::Open(_)
            | Action::Select(_)
            | Action::Abort
            | Action::Send(_)
            | Action::Wait(_) => {}
        }
    }

    /// Write to the socket as much of the oldest pending write as it accepts, or the FIN after the last one.
    pub(super) fn write(&mut self, zeros: &Zeros) -> Result<(), Errno> {
        if self.connecting {
            return Ok(());
        }
        if let Some(left) = self.writes.front_mut() {
            let length = CHUNK.min(usize::try_from(*left).unwrap_or(CHUNK));
            let more = (length as u64) < *left;
            *left -= send(&self.socket, &zeros.0[..length], more)?;
            if *left == 0 {
                self.writes.pop_front();
            }
        } else if self.writes_without_end {
            send(&self.socket, &zeros.0, false)?;
        }
        if self.finish == Finish::Requested && self.writes.is_empty() {
            socket::shutdown(self.socket.as_raw_fd(), Shutdown::Write)?;
            self.finish = Finish::Done;
        }
        Ok(())
    }
}

/// Send bytes; return the number that the socket accepted. `more` sets MSG_MORE, so that a write passed in several
/// chunks does not end a segment at each of them.
fn send(socket: &OwnedFd, bytes: &[u8], more: bool) -> Result<u64, Errno> {
    let mut flags = MsgFlags::MSG_NOSIGNAL;
    flags.set(MsgFlags::from_bits_retain(libc::MSG_MORE), more);
    match socket::send(socket.as_raw_fd(), bytes, flags) {
        Ok(sent) => Ok(sent as u64),
        Err(Errno::EAGAIN | Errno::EINTR) => Ok(0),
        Err(error) => Err(error),
    }
}

/// Discard up to `most` received bytes, by `MSG_TRUNC` (tcp(7)); return their number.
fn discard(socket: &OwnedFd, most: usize) -> Result<usize, Errno> {
    // SAFETY: with MSG_TRUNC the kernel writes nothing, so that no buffer is needed.
    let discarded =
        unsafe { libc::recv(socket.as_raw_fd(), std::ptr::null_mut(), most, libc::MSG_TRUNC) };
    Errno::result(discarded).map(|length| length as usize)
}

/// Number of unread bytes in the receive buffer: `SIOCINQ` of tcp(7), which equals `FIONREAD`.
fn unread(socket: &OwnedFd) -> Result<Bytes, Errno> {
    let mut length: libc::c_int = 0;
    // SAFETY: the kernel writes one int, which lives for the call.
    let asked = unsafe { libc::ioctl(socket.as_raw_fd(), libc::FIONREAD, &raw mut length) };
    Errno::result(asked).map(|_| Bytes::new(length.unsigned_abs().into()))
}
