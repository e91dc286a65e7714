//! JSON lines on a Unix socket, for any program: docs/signal.md describes them.

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

use crate::ServiceSource;
use crate::upcoming::Notice;
use skyhop_host::ServiceControl;
use skyhop_host::error::{Context, HostError};

/// The version of the lines. New fields and new types of lines do not change it.
pub const PROTOCOL_VERSION: u32 = 1;

/// Of all users together: each takes a descriptor of the service's.
const MOST_LISTENERS: usize = 256;

/// The descriptors that the service needs itself: modules' maps, namespaces, files that it reads again.
const RESERVED: usize = 48;

/// How long somebody may leave the first line unread who has connected.
const GREETING: time::Duration = time::Duration::from_secs(10);

/// Of one user, so that nobody alone keeps the others out.
const MOST_OF_A_USER: usize = 64;

/// One line.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Line<'l> {
    /// The first one of every connection.
    Hello {
        v: u32,
        source: &'l str,
        clock: &'l str,
        period_ns: Option<u64>,
        offset_ns: Option<u64>,
    },
    /// A handover that is to come.
    Handover {
        v: u32,
        at_ns: u64,
        at_utc: String,
        outage_ns: u64,
        error_ns: u64,
        kind: &'static str,
    },
}

/// Those who listen.
pub(crate) struct Audience {
    listener: UnixListener,
    path: PathBuf,
    hello: Vec<u8>,
    /// The oldest first.
    connections: Vec<Connection>,
    /// How many there may be: fewer where this process may have few descriptors.
    most: usize,
    /// A descriptor to give up when there is no other left, so that who connects can be turned away.
    spare: Option<File>,
    /// What went wrong last, and need not be said again.
    said: String,
}

struct Connection {
    stream: UnixStream,
    user: u32,
    since: time::Instant,
    /// Whether it has been seen to read what it was told first.
    reads: bool,
}

impl Connection {
    fn of(stream: UnixStream) -> std::io::Result<Self> {
        stream.set_nonblocking(true)?;
        let user = getsockopt(&stream, PeerCredentials)?.uid();
        Ok(Self { stream, user, since: time::Instant::now(), reads: false })
    }

    /// Whether it has left the first line unread for longer than it may.
    fn is_deaf(&mut self) -> bool {
        self.reads = self.reads || unread(&self.stream) == 0;
        !self.reads && self.since.elapsed() > GREETING
    }

    /// Whether its other end is closed.
    fn is_gone(&self) -> bool {
        let mut look = [PollFd::new(self.stream.as_fd(), PollFlags::empty())];
        let found = poll(&mut look, PollTimeout::ZERO).is_ok();
        found && look[0].revents().is_some_and(|seen| seen.contains(PollFlags::POLLHUP))
    }
}

impl Audience {
    /// Takes the socket's place, also from a service that was killed.
    pub(crate) fn open(path: &Path, source: &ServiceSource) -> Result<Self, HostError> {
        match fs::symlink_metadata(path) {
            Ok(found) if found.file_type().is_socket() => {
                refuse_in_use(path)?;
                fs::remove_file(path).context(&format!("cannot replace {}", path.display()))?;
            }
            Ok(_) => {
                return Err(HostError::Unsupported(format!(
                    "{} exists and is not a socket; give another --socket",
                    path.display()
                )));
            }
            // Whatever else is wrong with the place, taking it will tell.
            Err(_) => {}
        }
        // What is said is no secret and nothing is read: who may not serve may listen. Changed afterwards, the
        // permissions could be those of what somebody has put in its place.
        let usual = umask(Mode::from_bits_truncate(0o111));
        let bound = UnixListener::bind(path);
        umask(usual);
        let listener = bound.context(&format!("cannot listen on {}", path.display()))?;
        listener.set_nonblocking(true).context("cannot set up the socket")?;
        let hello = line(&hello(source))?;
        let (path, spare) = (path.to_owned(), spare_descriptor());
        let (connections, most, said) = (Vec::new(), most_listeners(), String::new());
        Ok(Self { listener, path, hello, connections, most, spare, said })
    }

    /// What to say where fewer may listen than usual.
    pub(crate) fn few(&self) -> Option<String> {
        (self.most < MOST_LISTENERS).then(|| {
            let most = self.most;
            format!("warning: this process may have few descriptors: {most} may listen, ulimit -n allows more")
        })
    }

    /// Notes what went wrong, where that was not the last that did.
    pub(crate) fn once(&mut self, what: &str, control: &mut dyn ServiceControl) {
        if self.said != what {
            control.note(&format!("warning: {what}"));
            self.said = what.to_owned();
        }
    }

    /// Tells everybody. Who does not read is not waited for.
    pub(crate) fn announce(&mut self, notice: &Notice) -> Result<(), HostError> {
        let said = line(&Line::Handover {
            v: PROTOCOL_VERSION,
            at_ns: notice.at_ns,
            at_utc: notice.at.to_string(),
            outage_ns: notice.outage.as_nanos(),
            error_ns: notice.error.as_nanos(),
            kind: notice.kind.name(),
        })?;
        self.connections.retain_mut(|connection| {
            !connection.is_deaf() && connection.stream.write_all(&said).is_ok()
        });
        Ok(())
    }

    /// Waits at most that long, and welcomes those who connect meanwhile.
    pub(crate) fn wait(&mut self, at_most: Duration) -> Result<(), HostError> {
        let timeout = TimeSpec::from_duration(std::time::Duration::from_nanos(at_most.as_nanos()));
        let mut ready = [PollFd::new(self.listener.as_fd(), PollFlags::POLLIN)];
        match ppoll(&mut ready, Some(timeout), None) {
            Ok(0) | Err(Errno::EINTR) => Ok(()),
            Ok(_) => self.welcome(),
            Err(error) => Err(error).context("cannot wait for listeners"),
        }
    }

    fn welcome(&mut self) -> Result<(), HostError> {
        let stream = match self.listener.accept() {
            Ok((stream, _)) => stream,
            // It has already gone.
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionAborted) =>
            {
                return Ok(());
            }
            Err(error) if is_short_of_descriptors(&error) => {
                self.turn_away();
                return Ok(());
            }
            Err(error) => return Err(error).context("cannot accept a listener"),
        };
        let connection = Connection::of(stream).context("cannot set up a listener's connection")?;
        self.connections.retain_mut(|other| !other.is_deaf());
        self.make_room(connection.user);
        self.connections.push(connection);
        // Who cannot even take the first line has gone.
        let newest = self.connections.last_mut().map(|newest| newest.stream.write_all(&self.hello));
        if newest.is_some_and(|greeted| greeted.is_err()) {
            self.connections.pop();
        }
        Ok(())
    }

    /// Lets the oldest connection of `user` go where they have too many, and that of the user with most where
    /// all together have; those that have gone by themselves first.
    fn make_room(&mut self, user: u32) {
        let of = |connections: &[Connection], user| {
            connections.iter().filter(|connection| connection.user == user).count()
        };
        let is_full = |connections: &[Connection]| {
            connections.len() >= self.most || of(connections, user) >= MOST_OF_A_USER
        };
        if is_full(&self.connections) {
            self.connections.retain(|connection| !connection.is_gone());
        }
        if !is_full(&self.connections) {
            return;
        }
        let users = self.connections.iter().map(|connection| connection.user);
        let leaving = match of(&self.connections, user) >= MOST_OF_A_USER {
            true => Some(user),
            false => users.max_by_key(|user| of(&self.connections, *user)),
        };
        let oldest = self.connections.iter().position(|one| Some(one.user) == leaving);
        oldest.map(|oldest| self.connections.remove(oldest));
    }

    /// Closes the next connection at once: left waiting, it would be reported again and again.
    fn turn_away(&mut self) {
        self.connections.retain(|connection| !connection.is_gone());
        self.spare = None;
        drop(self.listener.accept());
        self.spare = spare_descriptor();
    }
}

/// As many as there are descriptors for, beside the service's own.
fn most_listeners() -> usize {
    let allowed = getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(soft, _)| soft);
    let allowed = usize::try_from(allowed).unwrap_or(usize::MAX);
    allowed.saturating_sub(RESERVED).clamp(1, MOST_LISTENERS)
}

/// How much of what was written its other end has not read, in bytes of the kernel's memory.
fn unread(stream: &UnixStream) -> libc::c_int {
    let mut waiting: libc::c_int = 0;
    // SAFETY: the kernel writes one int, which lives for the call. unix(7): SIOCOUTQ, which is TIOCOUTQ.
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

/// Only a socket that nobody holds any more gives way; one that takes no streams is another program's.
fn refuse_in_use(path: &Path) -> Result<(), HostError> {
    let whose = match connected(path) {
        Ok(()) => "another skyhop signal serve runs; end it, or",
        Err(Errno::ECONNREFUSED) => return Ok(()),
        // It is stopped, or very busy.
        Err(Errno::EAGAIN) => "another program has it and does not answer; end it, or",
        Err(_) => "another program holds the socket;",
    };
    Err(HostError::Unsupported(format!(
        "{} is in use: {whose} give another --socket",
        path.display()
    )))
}

/// Connects without waiting for whoever does not accept.
fn connected(path: &Path) -> Result<(), Errno> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let stream = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    connect(stream.as_raw_fd(), &UnixAddr::new(path)?)
}

impl Drop for Audience {
    fn drop(&mut self) {
        // The service's result is what counts; a name that is left is taken over by the next service.
        fs::remove_file(&self.path).unwrap_or_default();
    }
}

fn hello(source: &ServiceSource) -> Line<'static> {
    let (source, grid) = match source {
        ServiceSource::Grid { grid, .. } => ("grid", Some(grid)),
        ServiceSource::Watched { .. } => ("blind", None),
        ServiceSource::Path(_) => ("path", None),
        ServiceSource::Forecast(_) => ("forecast", None),
    };
    Line::Hello {
        v: PROTOCOL_VERSION,
        source,
        clock: "CLOCK_MONOTONIC",
        period_ns: grid.map(|grid| grid.period.as_nanos()),
        offset_ns: grid.map(|grid| grid.offset.as_nanos()),
    }
}

fn line(line: &Line<'_>) -> Result<Vec<u8>, HostError> {
    let mut json = serde_json::to_vec(line)
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

    use skyhop_signal::schedule::Grid;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn only_a_socket_gives_way() {
        let period = Duration::from_secs(15);
        let grid = Grid { period, offset: Duration::ZERO };
        let source = ServiceSource::Grid { grid, error: Duration::ZERO };
        let path = std::env::temp_dir().join(format!("skyhop-socket-{}", std::process::id()));
        fs::write(&path, "somebody's file").unwrap();
        let refused = Audience::open(&path, &source).err().unwrap().to_string();
        assert!(refused.contains("is not a socket"), "{refused}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "somebody's file");
        fs::remove_file(&path).unwrap();
        // What a service that was killed has left.
        drop(UnixListener::bind(&path).unwrap());
        drop(Audience::open(&path, &source).unwrap());
        assert!(!path.exists());
        // What another program uses, of another kind.
        let theirs = UnixDatagram::bind(&path).unwrap();
        let refused = Audience::open(&path, &source).err().unwrap().to_string();
        assert!(refused.contains("another program holds the socket"), "{refused}");
        assert!(UnixDatagram::unbound().unwrap().connect(&path).is_ok(), "it is still theirs");
        drop(theirs);
        drop(Audience::open(&path, &source).unwrap());
        assert!(!path.exists());
    }

    #[test]
    fn who_leaves_the_greeting_unread_goes_in_time() {
        let grid = Grid { period: Duration::from_secs(15), offset: Duration::ZERO };
        let source = ServiceSource::Grid { grid, error: Duration::ZERO };
        let path = std::env::temp_dir().join(format!("skyhop-deaf-{}", std::process::id()));
        let mut audience = Audience::open(&path, &source).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o666, "everybody may listen");
        let [deaf, reads] = [(); 2].map(|()| UnixStream::connect(&path).unwrap());
        (0..2).for_each(|_| audience.wait(PATIENCE).unwrap());
        let mut hello = String::new();
        BufReader::new(&reads).read_line(&mut hello).unwrap();
        let just_now = time::Instant::now();
        assert!(audience.connections.iter_mut().all(|connection| {
            connection.since = just_now + GREETING;
            !connection.is_deaf()
        }));
        let long_ago = time::Instant::now().checked_sub(2 * GREETING).unwrap();
        audience.connections.iter_mut().for_each(|connection| connection.since = long_ago);
        let newest = UnixStream::connect(&path).unwrap();
        audience.wait(PATIENCE).unwrap();
        assert_eq!(audience.connections.len(), 2, "who reads and who is new");
        drop((deaf, newest));
    }

    #[test]
    fn a_stopped_service_is_not_waited_for() {
        let path = std::env::temp_dir().join(format!("skyhop-stopped-{}", std::process::id()));
        // Nobody accepts, and there is no more room to wait in.
        let _listener = UnixListener::bind(&path).unwrap();
        let waiting = (0..100_000).take_while(|_| connected(&path).is_ok()).count();
        assert!(waiting < 100_000);
        let refused = refuse_in_use(&path).unwrap_err().to_string();
        fs::remove_file(&path).unwrap();
        assert!(refused.contains("does not answer"), "{refused}");
    }

    #[test]
    fn idle_listeners_lock_nobody_out() {
        let grid = Grid { period: Duration::from_secs(15), offset: Duration::ZERO };
        let source = ServiceSource::Grid { grid, error: Duration::ZERO };
        let path = std::env::temp_dir().join(format!("skyhop-idle-{}", std::process::id()));
        let mut audience = Audience::open(&path, &source).unwrap();
        let mut listen = || {
            let stream = UnixStream::connect(&path).unwrap();
            audience.wait(PATIENCE).unwrap();
            BufReader::new(stream)
        };
        let mut idle: Vec<_> = (0..MOST_OF_A_USER).map(|_| listen()).collect();
        let mut hello = String::new();
        listen().read_line(&mut hello).unwrap();
        assert!(hello.contains("hello"), "{hello}");
        // The oldest made room: after its first line there is nothing.
        let mut said = String::new();
        idle[0].read_to_string(&mut said).unwrap();
        assert_eq!(said, hello);
        // The one above is closed by now, and nobody else has to go for the next one.
        listen();
        idle[1].get_ref().set_nonblocking(true).unwrap();
        said.clear();
        let error = idle[1].read_to_string(&mut said).unwrap_err();
        assert_eq!((error.kind(), said), (ErrorKind::WouldBlock, hello));
    }
}
