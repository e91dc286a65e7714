//! Server of a Unix socket that sends announcements as JSON lines to any program; docs/reference/signal-socket.md
//! describes the protocol.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll, ppoll};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, connect, getsockopt, socket,
    sockopt::PeerCredentials,
};
use nix::sys::stat::{Mode, umask};
use nix::sys::time::TimeSpec;
use serde::Serialize;
use skyhop_units::Duration;
use tracing::{debug, info, warn};

use crate::ServiceSource;
use crate::upcoming::Notice;
use skyhop_host::ServiceControl;
use skyhop_host::error::{Context, HostError};

/// Version of the protocol. New fields and new types of messages do not change it.
pub const PROTOCOL_VERSION: u32 = 1;

/// Maximum number of clients of all users together: each takes a file descriptor of the service.
const MAX_CLIENTS: usize = 256;

/// Number of file descriptors that the service itself needs: for modules' maps, namespaces, and
/// files that it reads again.
const RESERVED_DESCRIPTORS: usize = 48;

/// Time after which a client that has not read the first message is disconnected.
const GREETING_TIMEOUT: time::Duration = time::Duration::from_secs(10);

/// Maximum number of clients of one user, so that no user can lock the others out.
const MAX_CLIENTS_PER_USER: usize = 64;

/// Message of the protocol, one line of JSON.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Message<'l> {
    /// First message of every connection.
    Hello {
        v: u32,
        source: &'l str,
        clock: &'l str,
        period_ns: Option<u64>,
        offset_ns: Option<u64>,
    },
    /// Announcement of an upcoming handover.
    Handover {
        v: u32,
        at_ns: u64,
        at_utc: String,
        outage_ns: u64,
        error_ns: u64,
        kind: &'static str,
    },
}

/// Server of the Unix socket, with its connected clients.
pub(crate) struct SocketServer {
    listener: UnixListener,
    path: PathBuf,
    hello: Vec<u8>,
    /// Connected clients, the oldest first.
    clients: Vec<Client>,
    /// Maximum number of clients: less than [`MAX_CLIENTS`] if the process may open few descriptors.
    max_clients: usize,
    /// Spare descriptor, which is closed when no other descriptor is left, so that a waiting
    /// connection can be accepted and then closed.
    spare: Option<File>,
    /// Last warning to the user; the same warning is not given twice in a row.
    last_warning: String,
}

struct Client {
    stream: UnixStream,
    user: u32,
    since: time::Instant,
    /// Whether the client has read the first message.
    has_read_hello: bool,
}

impl Client {
    fn new(stream: UnixStream) -> std::io::Result<Self> {
        stream.set_nonblocking(true)?;
        let user = getsockopt(&stream, PeerCredentials)?.uid();
        Ok(Self { stream, user, since: time::Instant::now(), has_read_hello: false })
    }

    /// Whether the client has left the first message unread for longer than [`GREETING_TIMEOUT`].
    fn has_timed_out(&mut self) -> bool {
        self.has_read_hello = self.has_read_hello || unread(&self.stream) == 0;
        !self.has_read_hello && self.since.elapsed() > GREETING_TIMEOUT
    }

    /// Whether the client has closed its end.
    fn is_closed(&self) -> bool {
        let mut polled = [PollFd::new(self.stream.as_fd(), PollFlags::empty())];
        let found = poll(&mut polled, PollTimeout::ZERO).is_ok();
        found && polled[0].revents().is_some_and(|events| events.contains(PollFlags::POLLHUP))
    }
}

impl SocketServer {
    /// Create the socket; a stale one, left by a service that was killed, is replaced.
    pub(crate) fn open(path: &Path, source: &ServiceSource) -> Result<Self, HostError> {
        match fs::symlink_metadata(path) {
            Ok(found) if found.file_type().is_socket() => {
                refuse_in_use(path)?;
                info!(socket = %path.display(), "socket of a killed service is replaced");
                fs::remove_file(path).context(&format!("cannot replace {}", path.display()))?;
            }
            Ok(_) => {
                return Err(HostError::Unsupported(format!(
                    "{} exists and is not a socket; give another --socket",
                    path.display()
                )));
            }
            // Any other error recurs, and is reported, when the socket is bound.
            Err(_) => {}
        }
        // Announcements are public and the service reads nothing, so that every user may connect. The umask sets the
        // permissions at creation; a later chmod could hit another file that a user has put in the socket's place.
        let usual = umask(Mode::from_bits_truncate(0o111));
        let bound = UnixListener::bind(path);
        umask(usual);
        let listener = bound.context(&format!("cannot listen on {}", path.display()))?;
        listener.set_nonblocking(true).context("cannot set up the socket")?;
        let hello = encode(&hello(source))?;
        let (path, spare) = (path.to_owned(), spare_descriptor());
        let (clients, max_clients, last_warning) = (Vec::new(), max_clients(), String::new());
        Ok(Self { listener, path, hello, clients, max_clients, spare, last_warning })
    }

    /// Warning to the user if the process may open too few descriptors for [`MAX_CLIENTS`].
    pub(crate) fn limit_warning(&self) -> Option<String> {
        (self.max_clients < MAX_CLIENTS).then(|| {
            let most = self.max_clients;
            format!(
                "warning: the limit of open files allows only {most} programs on the socket; raise it with ulimit -n"
            )
        })
    }

    /// Warn the user, unless the same warning was the last one.
    pub(crate) fn warn_once(&mut self, what: &str, control: &mut dyn ServiceControl) {
        if self.last_warning != what {
            control.note(&format!("warning: {what}"));
            self.last_warning = what.to_owned();
        }
    }

    /// Send an announcement to all clients. A client whose buffer is full is disconnected, so that
    /// it does not delay the others.
    pub(crate) fn announce(&mut self, notice: &Notice) -> Result<(), HostError> {
        let message = encode(&Message::Handover {
            v: PROTOCOL_VERSION,
            at_ns: notice.at_ns,
            at_utc: notice.at.to_string(),
            outage_ns: notice.outage.as_nanos(),
            error_ns: notice.error.as_nanos(),
            kind: notice.kind.name(),
        })?;
        let before = self.clients.len();
        self.clients.retain_mut(|client| {
            !client.has_timed_out() && client.stream.write_all(&message).is_ok()
        });
        let told = self.clients.len();
        debug!(clients = told, disconnected = before - told, "announcement sent to the socket");
        Ok(())
    }

    /// Wait for at most this duration, and accept a client that connects in the meantime.
    pub(crate) fn wait(&mut self, at_most: Duration) -> Result<(), HostError> {
        let timeout = TimeSpec::from_duration(std::time::Duration::from_nanos(at_most.as_nanos()));
        let mut ready = [PollFd::new(self.listener.as_fd(), PollFlags::POLLIN)];
        match ppoll(&mut ready, Some(timeout), None) {
            Ok(0) | Err(Errno::EINTR) => Ok(()),
            Ok(_) => self.accept(),
            Err(error) => Err(error).context("cannot wait for programs to connect"),
        }
    }

    fn accept(&mut self) -> Result<(), HostError> {
        let stream = match self.listener.accept() {
            Ok((stream, _)) => stream,
            // The client has closed its connection already.
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionAborted) =>
            {
                return Ok(());
            }
            Err(error) if is_short_of_descriptors(&error) => {
                self.reject_next();
                return Ok(());
            }
            Err(error) => return Err(error).context("cannot accept a program's connection"),
        };
        let client = Client::new(stream).context("cannot set up a program's connection")?;
        self.clients.retain_mut(|other| !other.has_timed_out());
        self.make_room(client.user);
        self.clients.push(client);
        // The buffer of a new connection has room for the first message: an error means that the client is gone.
        let newest = self.clients.last_mut().map(|newest| newest.stream.write_all(&self.hello));
        match newest {
            Some(Ok(())) => info!(clients = self.clients.len(), "client connected"),
            _ => drop(self.clients.pop()),
        }
        Ok(())
    }

    /// Make room for a client of `user`: remove closed connections; then, if `user` has too many clients, the oldest
    /// one of that user; or, if there are too many clients in total, the oldest one of the user who has most.
    fn make_room(&mut self, user: u32) {
        let of =
            |clients: &[Client], user| clients.iter().filter(|client| client.user == user).count();
        let is_full = |clients: &[Client]| {
            clients.len() >= self.max_clients || of(clients, user) >= MAX_CLIENTS_PER_USER
        };
        if is_full(&self.clients) {
            self.clients.retain(|client| !client.is_closed());
        }
        if !is_full(&self.clients) {
            return;
        }
        let users = self.clients.iter().map(|client| client.user);
        let leaving = match of(&self.clients, user) >= MAX_CLIENTS_PER_USER {
            true => Some(user),
            false => users.max_by_key(|user| of(&self.clients, *user)),
        };
        let oldest = self.clients.iter().position(|one| Some(one.user) == leaving);
        warn!(user, clients = self.clients.len(), "too many clients: the oldest is disconnected");
        oldest.map(|oldest| self.clients.remove(oldest));
    }

    /// Accept and close the next connection: left in the backlog, it would wake `wait` again and again.
    fn reject_next(&mut self) {
        self.clients.retain(|client| !client.is_closed());
        self.spare = None;
        warn!("client rejected: the limit of open files is reached");
        drop(self.listener.accept());
        self.spare = spare_descriptor();
    }
}

/// Number of clients that RLIMIT_NOFILE allows in addition to the service's own descriptors, at most [`MAX_CLIENTS`].
fn max_clients() -> usize {
    let allowed = getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(soft, _)| soft);
    let allowed = usize::try_from(allowed).unwrap_or(usize::MAX);
    allowed.saturating_sub(RESERVED_DESCRIPTORS).clamp(1, MAX_CLIENTS)
}

/// Amount of data that the other end has not read yet, in bytes of kernel memory.
fn unread(stream: &UnixStream) -> libc::c_int {
    let mut waiting: libc::c_int = 0;
    // SAFETY: the kernel writes one int, which lives for the call. The call is SIOCOUTQ of unix(7), alias TIOCOUTQ.
    let asked = unsafe { libc::ioctl(stream.as_raw_fd(), libc::TIOCOUTQ, &raw mut waiting) };
    if asked == 0 { waiting } else { 0 }
}

fn spare_descriptor() -> Option<File> {
    File::open("/dev/null").ok()
}

fn is_short_of_descriptors(error: &std::io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw);
    matches!(code, Some(Errno::EMFILE | Errno::ENFILE))
}

/// Fail if a process still uses the socket. A socket that does not accept streams belongs to another program.
fn refuse_in_use(path: &Path) -> Result<(), HostError> {
    let whose = match try_connect(path) {
        Ok(()) => "another skyhop signal serve runs; stop it, or",
        Err(Errno::ECONNREFUSED) => return Ok(()),
        // The backlog is full: the process is stopped, or very busy.
        Err(Errno::EAGAIN) => "another program holds it and does not answer; stop it, or",
        Err(_) => "another program holds the socket;",
    };
    Err(HostError::Unsupported(format!(
        "{} is in use: {whose} give another --socket",
        path.display()
    )))
}

/// Connect without blocking when the backlog is full.
fn try_connect(path: &Path) -> Result<(), Errno> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let stream = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    connect(stream.as_raw_fd(), &UnixAddr::new(path)?)
}

impl Drop for SocketServer {
    fn drop(&mut self) {
        // An error does not matter: the next service replaces a socket that is left.
        fs::remove_file(&self.path).unwrap_or_default();
    }
}

fn hello(source: &ServiceSource) -> Message<'static> {
    let (source, grid) = match source {
        ServiceSource::Grid { grid, .. } => ("grid", Some(grid)),
        ServiceSource::Watched { .. } => ("blind", None),
        ServiceSource::Path(_) => ("path", None),
        ServiceSource::Forecast(_) => ("forecast", None),
    };
    Message::Hello {
        v: PROTOCOL_VERSION,
        source,
        clock: "CLOCK_MONOTONIC",
        period_ns: grid.map(|grid| grid.period.as_nanos()),
        offset_ns: grid.map(|grid| grid.offset.as_nanos()),
    }
}

fn encode(message: &Message<'_>) -> Result<Vec<u8>, HostError> {
    let mut json = serde_json::to_vec(message)
        .map_err(std::io::Error::other)
        .context("cannot encode an announcement")?;
    json.push(b'\n');
    Ok(json)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Read as _};
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::UnixDatagram;

    use skyhop_signal::schedule::HandoverGrid;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn only_a_socket_gives_way() {
        let period = Duration::from_secs(15);
        let grid = HandoverGrid { period, offset: Duration::ZERO };
        let source = ServiceSource::Grid { grid, error: Duration::ZERO };
        let path = std::env::temp_dir().join(format!("skyhop-socket-{}", std::process::id()));
        fs::write(&path, "a user's file").unwrap();
        let refused = SocketServer::open(&path, &source).err().unwrap().to_string();
        assert!(refused.contains("is not a socket"), "{refused}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "a user's file");
        fs::remove_file(&path).unwrap();
        // A socket left by a service that was killed is replaced.
        drop(UnixListener::bind(&path).unwrap());
        drop(SocketServer::open(&path, &source).unwrap());
        assert!(!path.exists());
        // A datagram socket that another program uses is not.
        let theirs = UnixDatagram::bind(&path).unwrap();
        let refused = SocketServer::open(&path, &source).err().unwrap().to_string();
        assert!(refused.contains("another program holds the socket"), "{refused}");
        assert!(
            UnixDatagram::unbound().unwrap().connect(&path).is_ok(),
            "the other program's socket still works"
        );
        drop(theirs);
        drop(SocketServer::open(&path, &source).unwrap());
        assert!(!path.exists());
    }

    #[test]
    fn clients_that_leave_the_greeting_unread_are_disconnected() {
        let grid = HandoverGrid { period: Duration::from_secs(15), offset: Duration::ZERO };
        let source = ServiceSource::Grid { grid, error: Duration::ZERO };
        let path = std::env::temp_dir().join(format!("skyhop-deaf-{}", std::process::id()));
        let mut server = SocketServer::open(&path, &source).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o666, "all users may connect");
        let [deaf, reads] = [(); 2].map(|()| UnixStream::connect(&path).unwrap());
        (0..2).for_each(|_| server.wait(PATIENCE).unwrap());
        let mut hello = String::new();
        BufReader::new(&reads).read_line(&mut hello).unwrap();
        let just_now = time::Instant::now();
        assert!(server.clients.iter_mut().all(|client| {
            client.since = just_now + GREETING_TIMEOUT;
            !client.has_timed_out()
        }));
        let long_ago = time::Instant::now().checked_sub(2 * GREETING_TIMEOUT).unwrap();
        server.clients.iter_mut().for_each(|client| client.since = long_ago);
        let newest = UnixStream::connect(&path).unwrap();
        server.wait(PATIENCE).unwrap();
        assert_eq!(server.clients.len(), 2, "the client that reads, and the new one");
        drop((deaf, newest));
    }

    #[test]
    fn a_stopped_service_is_not_waited_for() {
        let path = std::env::temp_dir().join(format!("skyhop-stopped-{}", std::process::id()));
        // No process accepts, and the backlog is filled.
        let _listener = UnixListener::bind(&path).unwrap();
        let waiting = (0..100_000).take_while(|_| try_connect(&path).is_ok()).count();
        assert!(waiting < 100_000);
        let refused = refuse_in_use(&path).unwrap_err().to_string();
        fs::remove_file(&path).unwrap();
        assert!(refused.contains("does not answer"), "{refused}");
    }

    #[test]
    fn idle_clients_do_not_lock_others_out() {
        let grid = HandoverGrid { period: Duration::from_secs(15), offset: Duration::ZERO };
        let source = ServiceSource::Grid { grid, error: Duration::ZERO };
        let path = std::env::temp_dir().join(format!("skyhop-idle-{}", std::process::id()));
        let mut server = SocketServer::open(&path, &source).unwrap();
        let mut listen = || {
            let stream = UnixStream::connect(&path).unwrap();
            server.wait(PATIENCE).unwrap();
            BufReader::new(stream)
        };
        let mut idle: Vec<_> = (0..MAX_CLIENTS_PER_USER).map(|_| listen()).collect();
        let mut hello = String::new();
        listen().read_line(&mut hello).unwrap();
        assert!(hello.contains("hello"), "{hello}");
        // The oldest client was disconnected after its first message.
        let mut said = String::new();
        idle[0].read_to_string(&mut said).unwrap();
        assert_eq!(said, hello);
        // The client above has closed its connection, so that the next one needs no other to be disconnected.
        listen();
        idle[1].get_ref().set_nonblocking(true).unwrap();
        said.clear();
        let error = idle[1].read_to_string(&mut said).unwrap_err();
        assert_eq!((error.kind(), said), (ErrorKind::WouldBlock, hello));
    }
}
