//! JSON lines on a Unix socket, for any program: docs/signal.md describes them.

use std::fs::{self, Permissions};
use std::io::{ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use serde::Serialize;
use skyhop_units::Duration;

use crate::ServiceSource;
use crate::upcoming::Notice;
use skyhop_host::error::{Context, HostError};

/// The version of the lines. New fields and new types of lines do not change it.
pub const PROTOCOL_VERSION: u32 = 1;

/// More are turned away: each takes a descriptor of the service's.
const MOST_LISTENERS: usize = 256;

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
    connections: Vec<UnixStream>,
}

impl Audience {
    /// Takes the socket's place, also from a service that was killed.
    pub(crate) fn open(path: &Path, source: &ServiceSource) -> Result<Self, HostError> {
        if UnixStream::connect(path).is_ok() {
            return Err(HostError::Unsupported(format!(
                "{} is in use: another skyhop signal serve runs; end it, or give another --socket",
                path.display()
            )));
        }
        match fs::symlink_metadata(path) {
            Ok(found) if found.file_type().is_socket() => {
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
        let listener =
            UnixListener::bind(path).context(&format!("cannot listen on {}", path.display()))?;
        listener.set_nonblocking(true).context("cannot set up the socket")?;
        // What is said is no secret and nothing is read: who may not serve may listen.
        fs::set_permissions(path, Permissions::from_mode(0o666))
            .context(&format!("cannot open {} to everybody", path.display()))?;
        let hello = line(&hello(source))?;
        Ok(Self { listener, path: path.to_owned(), hello, connections: Vec::new() })
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
        self.connections.retain_mut(|connection| connection.write_all(&said).is_ok());
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
        let mut connection = match self.listener.accept() {
            Ok((connection, _)) => connection,
            // It has already gone.
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionAborted) =>
            {
                return Ok(());
            }
            Err(error) => return Err(error).context("cannot accept a listener"),
        };
        // Those that have gone are noticed when something is said to them.
        if self.connections.len() >= MOST_LISTENERS {
            return Ok(());
        }
        connection.set_nonblocking(true).context("cannot set up a listener's connection")?;
        if connection.write_all(&self.hello).is_ok() {
            self.connections.push(connection);
        }
        Ok(())
    }
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
    use skyhop_signal::schedule::Grid;

    use super::*;

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
    }
}
