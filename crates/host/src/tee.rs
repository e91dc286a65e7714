//! Output of programs: forwarded as it arrives, and captured up to a limit.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::{Winsize, openpty};
use nix::sys::termios::{SetArg, cfmakeraw, tcgetattr, tcsetattr};
use nix::unistd::pipe2;

use crate::error::{Context, HostError};
use crate::thread::{Worker, join, spawn};

/// Largest number of bytes captured from the beginning of the output, and again from its end.
const CAPTURE_LIMIT: usize = 32 << 10;
/// Interval in ms at which an idle stream checks whether its program has ended.
const POLL_MS: u16 = 20;

/// Stream of this process that a program's stream is forwarded to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputStream {
    /// Standard output of this process.
    Stdout,
    /// Standard error of this process.
    Stderr,
}

/// Copier of the output streams of a program and its children.
#[derive(Debug, Default)]
pub struct Tee {
    captured: Arc<Mutex<Captured>>,
    ended: Arc<AtomicBool>,
    threads: Vec<Worker<()>>,
}

impl Tee {
    /// Connect a command's standard output and standard error to this process's streams.
    ///
    /// If the target stream is a terminal, the command gets a pseudo-terminal, because programs format and buffer their
    /// output differently in a pipe.
    pub fn connect(
        &mut self,
        command: &mut Command,
        output: OutputStream,
        error: OutputStream,
    ) -> Result<(), HostError> {
        command.stdout(self.stream(output)?).stderr(self.stream(error)?);
        Ok(())
    }

    /// Stop copying after the program has ended; return the program's output, without the middle if it is long.
    pub fn finish(self) -> Result<String, HostError> {
        self.ended.store(true, Ordering::Release);
        self.threads.into_iter().try_for_each(join)?;
        Ok(self.captured.lock().unwrap_or_else(PoisonError::into_inner).text())
    }

    fn stream(&mut self, to_stream: OutputStream) -> Result<Stdio, HostError> {
        let (ours, theirs) = channel(to_stream)?;
        // Closed in programs, which could otherwise hold this process's stream open after its end.
        let to = match to_stream {
            OutputStream::Stdout => io::stdout().as_fd().try_clone_to_owned(),
            OutputStream::Stderr => io::stderr().as_fd().try_clone_to_owned(),
        };
        let to = File::from(to.context("cannot forward a program's output")?);
        let (captured, ended) = (Arc::clone(&self.captured), Arc::clone(&self.ended));
        self.threads.push(spawn("output".to_owned(), move || {
            copy(&ours, to, &captured, &ended).context("cannot forward a program's output")
        })?);
        Ok(theirs.into())
    }
}

/// Create a pipe or pseudo-terminal; return this process's end and the program's end.
fn channel(to_stream: OutputStream) -> Result<(OwnedFd, OwnedFd), HostError> {
    let stdout = io::stdout();
    let stderr = io::stderr();
    let (ours, is_terminal) = match to_stream {
        OutputStream::Stdout => (stdout.as_fd(), stdout.is_terminal()),
        OutputStream::Stderr => (stderr.as_fd(), stderr.is_terminal()),
    };
    if !is_terminal {
        return pipe2(OFlag::O_CLOEXEC).context("cannot create a pipe");
    }
    let action = "cannot open a pseudo-terminal for a program";
    let mut size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the kernel writes one `Winsize`, where it writes at all.
    let _ = unsafe { libc::ioctl(ours.as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) };
    let pair = openpty(Some(&size), None).context(action)?;
    // Raw mode: the real terminal processes the output.
    let mut settings = tcgetattr(&pair.slave).context(action)?;
    cfmakeraw(&mut settings);
    tcsetattr(&pair.slave, SetArg::TCSANOW, &settings).context(action)?;
    Ok((pair.master, pair.slave))
}

/// Copy until the stream ends, or until the program has ended and no data is left.
fn copy(
    from: &OwnedFd,
    mut to: File,
    captured: &Mutex<Captured>,
    ended: &AtomicBool,
) -> Result<(), io::Error> {
    let (mut goes_on, mut chunk) = (true, vec![0; 1 << 14]);
    loop {
        let has_ended = ended.load(Ordering::Acquire);
        let mut ready = [PollFd::new(from.as_fd(), PollFlags::POLLIN)];
        match poll(&mut ready, PollTimeout::from(POLL_MS)) {
            Ok(0) if has_ended => return Ok(()),
            Ok(0) | Err(Errno::EINTR) => continue,
            woken => woken?,
        };
        let length = match nix::unistd::read(from, &mut chunk) {
            // A pseudo-terminal without an open slave returns EIO.
            Ok(0) | Err(Errno::EIO) => return Ok(()),
            read => read?,
        };
        captured.lock().unwrap_or_else(PoisonError::into_inner).add(&chunk[..length]);
        // If the reader of this process's output is closed, copying stops, but the run continues.
        goes_on = goes_on && to.write_all(&chunk[..length]).is_ok();
    }
}

/// Captured beginning and end of the output.
#[derive(Debug, Default)]
struct Captured {
    first: Vec<u8>,
    last: VecDeque<u8>,
    omitted: usize,
}

impl Captured {
    fn add(&mut self, bytes: &[u8]) {
        let (first, rest) = bytes.split_at(bytes.len().min(CAPTURE_LIMIT - self.first.len()));
        self.first.extend(first);
        self.last.extend(rest);
        let too_many = self.last.len().saturating_sub(CAPTURE_LIMIT);
        self.last.drain(..too_many);
        self.omitted += too_many;
    }

    fn text(&mut self) -> String {
        let first = String::from_utf8_lossy(&self.first);
        let last = String::from_utf8_lossy(self.last.make_contiguous());
        match self.omitted {
            0 => format!("{first}{last}"),
            count => format!("{first}\n[{count} bytes omitted]\n{last}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginning_and_end_of_the_output_are_captured() {
        let mut tee = Tee::default();
        let mut command = Command::new("sh");
        let script = "echo first; i=0; while [ $i -lt 3000 ]; do echo 0123456789012345678901234567890; i=$((i+1)); done; \
                      echo last";
        command.arg("-c").arg(script);
        tee.connect(&mut command, OutputStream::Stderr, OutputStream::Stderr).unwrap();
        assert!(command.status().unwrap().success());
        // Close this process's copies of the program's pipe ends, as `spawn` does.
        drop(command);
        let text = tee.finish().unwrap();
        assert!(text.starts_with("first\n0123456789") && text.ends_with("last\n"), "{text}");
        assert!(text.len() < 2 * CAPTURE_LIMIT + 100 && text.contains("bytes omitted]"));
    }

    #[test]
    fn a_program_does_not_inherit_the_streams_of_this_process() {
        let streams = ["/proc/self/fd/1", "/proc/self/fd/2"].map(std::fs::read_link);
        let mut tee = Tee::default();
        let mut command = Command::new("sh");
        command.arg("-c").arg("for open in /proc/self/fd/*; do readlink $open; done; true");
        command.stdin(Stdio::null());
        tee.connect(&mut command, OutputStream::Stdout, OutputStream::Stderr).unwrap();
        assert!(command.status().unwrap().success());
        drop(command);
        let listed = tee.finish().unwrap();
        // Those that are also the parent's standard input, such as /dev/null or a terminal, identify nothing.
        let is_own = |place: &str| place.starts_with("pipe:") || place.starts_with("socket:");
        for stream in streams.map(|place| place.unwrap().to_string_lossy().into_owned()) {
            assert!(!is_own(&stream) || !listed.contains(&stream), "{stream} in {listed}");
        }
    }

    #[test]
    fn a_child_that_stays_does_not_hold_the_end_up() {
        let mut tee = Tee::default();
        let mut command = Command::new("sh");
        command.arg("-c").arg("echo here; sleep 20 &");
        tee.connect(&mut command, OutputStream::Stderr, OutputStream::Stderr).unwrap();
        command.status().unwrap();
        assert_eq!(tee.finish().unwrap(), "here\n");
    }
}
