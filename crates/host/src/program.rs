//! Programs that generate the traffic: a client in the near namespace, a server in the far one.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{SigHandler, SigSet, Signal, kill, killpg, signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{AccessFlags, Pid, access};
use tracing::{debug, info, warn};

use crate::error::{Context, HostError};
use crate::isolation::DescriptorLimit;
use crate::namespace::NetNamespace;
use crate::tee::{OutputStream, Tee};

/// Client program and its server.
///
/// `{server}` in either command is replaced by the far end's address, which is also in the environment variable
/// `SKYHOP_SERVER`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Program {
    /// Command line of the client, run in the near namespace; the run ends with it.
    pub client: Vec<String>,
    /// Shell command of the server, started in the far namespace before the client; its output goes to standard error.
    pub server: Option<String>,
}

/// Longest time to wait until the server listens; then the client starts anyway.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest time to wait for a program to end after a signal.
const END_TIMEOUT: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(10);
/// Exit status with which a shell reports that a command was not found.
const NOT_FOUND: i32 = 127;
/// State of a listening socket in /proc/net/tcp.
const LISTEN: &str = "0A";

/// Check that the client exists, before anything is set up.
pub fn check(program: &Program) -> Result<(), HostError> {
    let Some(client) = program.client.first().filter(|name| !name.is_empty()) else {
        let message = "no client program was given; put its command line after --".to_owned();
        return Err(HostError::Unsupported(message));
    };
    if is_installed(client) { Ok(()) } else { Err(not_found(client, "no such program")) }
}

/// Whether a program of this name or path can be started.
pub fn is_installed(name: &str) -> bool {
    if name.contains('/') {
        return is_executable(Path::new(name));
    }
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|directory| is_executable(&directory.join(name)))
}

fn is_executable(path: &Path) -> bool {
    path.is_file() && access(&PathBuf::from(path), AccessFlags::X_OK).is_ok()
}

fn not_found(command: &str, reason: &str) -> HostError {
    HostError::ProgramNotFound { command: command.to_owned(), reason: reason.to_owned() }
}

/// Collector of the exit status of every child: PID 1 also inherits daemonised processes.
#[derive(Debug, Default)]
pub struct Reaper {
    statuses: BTreeMap<Pid, i32>,
    watched: Vec<Pid>,
}

impl Reaper {
    fn watch(&mut self, pid: Pid) {
        self.watched.push(pid);
    }

    /// Exit status of a watched process, 128 + signal number if a signal ended it; `None` while it runs.
    pub fn status(&mut self, pid: Pid) -> Result<Option<i32>, HostError> {
        self.reap()?;
        Ok(self.statuses.get(&pid).copied())
    }

    fn reap(&mut self) -> Result<(), HostError> {
        loop {
            let (pid, status) = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, status)) => (pid, status),
                Ok(WaitStatus::Signaled(pid, signal, _)) => (pid, 128 + signal as i32),
                Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return Ok(()),
                Ok(_) | Err(Errno::EINTR) => continue,
                Err(error) => return Err(error).context("cannot wait for the programs"),
            };
            if self.watched.contains(&pid) {
                info!(%pid, status, "program ended");
                self.statuses.insert(pid, status);
            } else {
                debug!(%pid, status, "child of a program ended");
            }
        }
    }
}

/// Running client, and the copier of its output.
#[derive(Debug)]
pub struct Client {
    pid: Pid,
    tee: Tee,
}

impl Client {
    /// Exit status of the client; `None` while it runs.
    pub fn status(&self, reaper: &mut Reaper) -> Result<Option<i32>, HostError> {
        reaper.status(self.pid)
    }

    /// Output of a client that has ended.
    pub fn printed(self) -> Result<String, HostError> {
        self.tee.finish()
    }
}

/// Start the client in `namespace`.
pub fn start_client(
    words: &[String],
    namespace: &NetNamespace,
    server: Ipv4Addr,
    limit: DescriptorLimit,
    reaper: &mut Reaper,
) -> Result<Client, HostError> {
    let words: Vec<String> = words.iter().map(|word| fill_in(word, server)).collect();
    let (name, arguments) = words.split_first().ok_or_else(|| not_found("", "it is empty"))?;
    let (mut command, mut tee) = (Command::new(name), Tee::default());
    command.args(arguments);
    tee.connect(&mut command, OutputStream::Stdout, OutputStream::Stderr)?;
    let pid = spawn(command, name, namespace, server, limit)?;
    reaper.watch(pid);
    info!(%pid, command = ?words, "client started");
    Ok(Client { pid, tee })
}

/// Terminate a client that is still running at the end of the run.
pub fn terminate_client(client: &Client, reaper: &mut Reaper) -> Result<(), HostError> {
    let client = client.pid;
    // Ctrl-C has also been sent to the client, which may end by itself.
    if ended_within(END_TIMEOUT, client, reaper)? {
        return Ok(());
    }
    for request in [Signal::SIGTERM, Signal::SIGKILL] {
        info!(pid = %client, signal = request.as_str(), "client is told to end");
        kill(client, request).context("cannot end the client")?;
        if ended_within(END_TIMEOUT, client, reaper)? {
            return Ok(());
        }
    }
    Ok(())
}

fn ended_within(timeout: Duration, pid: Pid, reaper: &mut Reaper) -> Result<bool, HostError> {
    let asked = Instant::now();
    while reaper.status(pid)?.is_none() {
        if asked.elapsed() >= timeout {
            return Ok(false);
        }
        thread::sleep(POLL);
    }
    Ok(true)
}

/// Running server with its process group.
#[derive(Debug)]
pub struct Server {
    pid: Pid,
    tee: Tee,
}

impl Server {
    /// Start the server and wait until it listens.
    pub fn start(
        shell_command: &str,
        namespace: &NetNamespace,
        address: Ipv4Addr,
        limit: DescriptorLimit,
        reaper: &mut Reaper,
    ) -> Result<Self, HostError> {
        let shell_command = fill_in(shell_command, address);
        let mut command = Command::new("/bin/sh");
        // The server gets its own process group: Ctrl-C must not reach it, and the whole group is ended afterwards.
        command.arg("-c").arg(&shell_command).stdin(Stdio::null()).process_group(0);
        // The server's output does not go to standard output: that is for the client, whose output
        // may be piped into another program.
        let mut tee = Tee::default();
        tee.connect(&mut command, OutputStream::Stderr, OutputStream::Stderr)?;
        let before = count_listeners(namespace)?;
        let server = Self { pid: spawn(command, &shell_command, namespace, address, limit)?, tee };
        reaper.watch(server.pid);
        info!(pid = %server.pid, command = shell_command, "server started");
        let started = Instant::now();
        while started.elapsed() < LISTEN_TIMEOUT && count_listeners(namespace)? <= before {
            match reaper.status(server.pid)? {
                Some(NOT_FOUND) => {
                    return Err(not_found(&shell_command, "the shell cannot find it"));
                }
                Some(0) => break,
                Some(status) => {
                    return Err(HostError::ServerEnded { command: shell_command, status });
                }
                None => thread::sleep(POLL),
            }
        }
        match started.elapsed() {
            elapsed if elapsed < LISTEN_TIMEOUT => debug!(?elapsed, "server is ready"),
            elapsed => warn!(?elapsed, "server does not listen on a TCP port; the client starts"),
        }
        Ok(server)
    }

    /// End the server's process group, by SIGTERM and then SIGKILL; return its output.
    pub fn end(self, reaper: &mut Reaper) -> Result<String, HostError> {
        for request in [Signal::SIGTERM, Signal::SIGKILL] {
            debug!(pid = %self.pid, signal = request.as_str(), "server's process group is told to end");
            match killpg(self.pid, request) {
                Ok(()) => {}
                // No process is left in the group.
                Err(Errno::ESRCH) => break,
                Err(error) => return Err(error).context("cannot end the server"),
            }
            ended_within(END_TIMEOUT, self.pid, reaper)?;
        }
        self.tee.finish()
    }
}

fn fill_in(text: &str, server: Ipv4Addr) -> String {
    text.replace("{server}", &server.to_string())
}

fn spawn(
    mut command: Command,
    name: &str,
    namespace: &NetNamespace,
    server: Ipv4Addr,
    limit: DescriptorLimit,
) -> Result<Pid, HostError> {
    command.env("SKYHOP_SERVER", server.to_string());
    // SAFETY: the closure makes system calls only, which is allowed between fork and exec.
    unsafe { command.pre_exec(move || default_signals().and(Ok(limit.restore()?))) };
    namespace.inside(|| match command.spawn() {
        // The reaper, not this handle, waits for the child.
        Ok(child) => Ok(Pid::from_raw(child.id() as i32)),
        Err(error) => Err(not_found(name, &error.to_string())),
    })
}

/// Restore the default action of signals that the engine ignores.
fn default_signals() -> io::Result<()> {
    use Signal::{SIGHUP, SIGINT, SIGPIPE, SIGQUIT, SIGTERM};
    for each in [SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGPIPE] {
        // SAFETY: the default is not a function, so nothing runs in signal context.
        unsafe { signal(each, SigHandler::SigDfl) }?;
    }
    Ok(SigSet::empty().thread_set_mask()?)
}

/// Number of listening TCP sockets in a namespace.
fn count_listeners(namespace: &NetNamespace) -> Result<usize, HostError> {
    namespace.inside(|| {
        let count = |file: &str| match fs::read_to_string(file) {
            Ok(table) => Ok(parse_listeners(&table)),
            // The kernel has no IPv6.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(error).context(&format!("cannot read {file}")),
        };
        Ok(count("/proc/thread-self/net/tcp")? + count("/proc/thread-self/net/tcp6")?)
    })
}

/// Count listening sockets in /proc/net/tcp; its fourth column is the state (proc(5)).
fn parse_listeners(table: &str) -> usize {
    table.lines().skip(1).filter(|line| line.split_whitespace().nth(3) == Some(LISTEN)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_sockets_are_counted_by_their_state() {
        let table = "  sl  local_address rem_address   st tx_queue\n\
                     0: 0100007F:1451 00000000:0000 0A 0 0\n\
                     1: 0100007F:1451 0100007F:9999 01 0 0\n";
        assert_eq!(parse_listeners(table), 1);
    }

    #[test]
    fn a_client_that_does_not_exist_is_refused_before_anything_starts() {
        let program = |client: &[&str]| Program {
            client: client.iter().map(|word| (*word).to_owned()).collect(),
            server: None,
        };
        assert_eq!(check(&program(&["sh", "-c", "true"])), Ok(()));
        for missing in ["no-such-program", "/no/such/program", "/etc"] {
            let error = check(&program(&[missing])).unwrap_err().to_string();
            assert!(error.contains(missing) && error.contains("PATH"), "{error}");
        }
        assert!(check(&program(&[])).is_err());
    }
}
