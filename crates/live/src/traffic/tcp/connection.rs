//! One end of one connection: what its application has asked of the socket and has not got yet.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::socket::{self, MsgFlags, Shutdown, SockaddrIn, sockopt};
use skyhop_app::{Action, Event, Reader};
use skyhop_host::error::{Context, HostError};
use skyhop_units::{Bytes, Instant};

/// The most that is written at once.
const CHUNK: usize = 256 * 1024;
/// The most that is discarded at once.
const DISCARD: usize = 4 << 20;

/// What is written: it has no content.
#[derive(Debug)]
pub(super) struct Zeros(Vec<u8>);

impl Default for Zeros {
    fn default() -> Self {
        Self(vec![0; CHUNK])
    }
}

/// One end of one connection. Whatever fails on it means that it is gone.
#[derive(Debug)]
pub(super) struct Connection {
    socket: Arc<OwnedFd>,
    connecting: bool,
    /// What is left of the application's writes, each of which is one of its own.
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
    Asked,
    Done,
}

impl Connection {
    /// One whose handshake has begun.
    pub(super) fn connecting(socket: Arc<OwnedFd>, reader: Reader) -> Self {
        Self { connecting: true, ..Self::there(socket, reader) }
    }

    /// One that is there.
    pub(super) fn there(socket: Arc<OwnedFd>, reader: Reader) -> Self {
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

    /// What it has received, once there is no more to come.
    pub(super) fn received_whole(&self) -> Option<Bytes> {
        self.peer_finished.then_some(self.read)
    }

    /// Whether there is something in it that is still to be written.
    pub(super) fn has_unwritten(&self) -> bool {
        !self.writes.is_empty() || self.writes_without_end || self.finish == Finish::Asked
    }

    /// Whether both ends have said that they have no more to send.
    pub(super) fn is_over(&self) -> bool {
        self.peer_finished && self.finish == Finish::Done
    }

    /// Lets the kernel deliver what is still in the socket when it is closed, and the stream's end.
    pub(super) fn deliver_when_closed(&self) -> Result<(), HostError> {
        let delivers = libc::linger { l_onoff: 0, l_linger: 0 };
        socket::setsockopt(&self.socket, sockopt::Linger, &delivers)
            .context("cannot close a flow's connection")
    }

    // --- waiting ---

    /// What to wait for at the socket; `None`: nothing there is wanted now.
    pub(super) fn awaits(&self, now: Instant) -> Option<(BorrowedFd<'_>, PollFlags)> {
        let reads =
            !self.connecting && !self.peer_finished && self.reads_at().is_none_or(|at| at <= now);
        let mut events = PollFlags::empty();
        events.set(PollFlags::POLLIN, reads);
        events.set(PollFlags::POLLOUT, self.connecting || self.has_unwritten());
        (!events.is_empty()).then_some((self.socket.as_fd(), events))
    }

    /// When it has something to do whatever happens at the socket: a slow reader reads.
    pub(super) fn next(&self, now: Instant) -> Instant {
        let reads = !self.connecting && !self.peer_finished;
        self.reads_at().filter(|at| reads && *at > now).unwrap_or(Instant::NEVER)
    }

    /// When a slow reader looks again whether there is anything; `None`: at once.
    fn reads_at(&self) -> Option<Instant> {
        self.reader.next(Bytes::new(1))
    }

    // --- from the socket ---

    /// What has happened there: at most one thing at a time.
    pub(super) fn look(&mut self, now: Instant) -> Result<Option<Event>, Errno> {
        if self.connecting {
            return self.look_whether_connected();
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

    fn look_whether_connected(&mut self) -> Result<Option<Event>, Errno> {
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

    /// How much it may read now.
    fn readable(&mut self, now: Instant) -> Result<usize, Errno> {
        if self.peer_finished || self.reads_at().is_some_and(|at| at > now) {
            return Ok(0);
        }
        if self.reader.is_fast() {
            return Ok(DISCARD);
        }
        match unread(&self.socket)? {
            // The stream's end or an error shows only to those who read.
            Bytes::ZERO => Ok(1),
            unread => Ok(self.reader.take(now, unread).as_u64() as usize),
        }
    }

    /// Reads what is there after the flow's time; whether more may come.
    pub(super) fn discards_more(&self) -> bool {
        match discard(&self.socket, DISCARD) {
            Ok(length) => length > 0,
            Err(error) => matches!(error, Errno::EAGAIN | Errno::EINTR),
        }
    }

    // --- to the socket ---

    /// Takes over what the application wants of the connection.
    pub(super) fn ask(&mut self, action: Action) {
        match action {
            Action::Write(bytes) => self.writes.push_back(bytes.as_u64()),
            Action::WriteWithoutEnd => self.writes_without_end = true,
            Action::Pause => self.writes_without_end = false,
            Action::Finish => (self.writes_without_end, self.finish) = (false, Finish::Asked),
            // These are not about this connection.
            Action::Connect
            | Action::Open(_)
            | Action::Turn(_)
            | Action::Abort
            | Action::Send(_)
            | Action::Wait(_) => {}
        }
    }

    /// Hands the socket what it has room for, of one write at a time.
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
        if self.finish == Finish::Asked && self.writes.is_empty() {
            socket::shutdown(self.socket.as_raw_fd(), Shutdown::Write)?;
            self.finish = Finish::Done;
        }
        Ok(())
    }
}

/// How much the socket took. Its own ends of segments are not those of a write that it takes in pieces.
fn send(socket: &OwnedFd, bytes: &[u8], more: bool) -> Result<u64, Errno> {
    let mut flags = MsgFlags::MSG_NOSIGNAL;
    flags.set(MsgFlags::from_bits_retain(libc::MSG_MORE), more);
    match socket::send(socket.as_raw_fd(), bytes, flags) {
        Ok(sent) => Ok(sent as u64),
        Err(Errno::EAGAIN | Errno::EINTR) => Ok(0),
        Err(error) => Err(error),
    }
}

/// tcp(7): with `MSG_TRUNC` the kernel discards what it would have copied.
fn discard(socket: &OwnedFd, most: usize) -> Result<usize, Errno> {
    // SAFETY: with MSG_TRUNC the kernel writes nothing, so that no buffer is needed.
    let discarded =
        unsafe { libc::recv(socket.as_raw_fd(), std::ptr::null_mut(), most, libc::MSG_TRUNC) };
    Errno::result(discarded).map(|length| length as usize)
}

/// tcp(7): `SIOCINQ`, which is `FIONREAD`.
fn unread(socket: &OwnedFd) -> Result<Bytes, Errno> {
    let mut length: libc::c_int = 0;
    // SAFETY: the kernel writes one int, which lives for the call.
    let asked = unsafe { libc::ioctl(socket.as_raw_fd(), libc::FIONREAD, &raw mut length) };
    Errno::result(asked).map(|_| Bytes::new(length.unsigned_abs().into()))
}
