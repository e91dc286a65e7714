//! What programs print: passed on as it comes, and kept up to a limit.

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
use nix::unistd::{dup, pipe2};

use crate::error::{Context, HostError};
use crate::thread::{Worker, join, spawn};

/// How much of the beginning, and how much of the end, is kept.
const KEPT: usize = 32 << 10;
/// How often a stream that says nothing is asked whether its program has ended.
const PATIENCE_MS: u16 = 20;

/// Where a program's stream goes on to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Onward {
    /// This process's standard output.
    Output,
    /// Its standard error.
    Error,
}

/// Copies the streams of one program, or of one and all that it starts.
#[derive(Debug, Default)]
pub struct Tee {
    kept: Arc<Mutex<Kept>>,
    ended: Arc<AtomicBool>,
    threads: Vec<Worker<()>>,
}

impl Tee {
    /// Gives a command its standard output and standard error.
    ///
    /// Where ours is a terminal it gets one, too: programs print in another way into a pipe.
    pub fn connect(
        &mut self,
        command: &mut Command,
        output: Onward,
        error: Onward,
    ) -> Result<(), HostError> {
        command.stdout(self.stream(output)?).stderr(self.stream(error)?);
        Ok(())
    }

    /// The program has ended: what it has printed up to now, its middle left out where it is long.
    pub fn finish(self) -> Result<String, HostError> {
        self.ended.store(true, Ordering::Release);
        self.threads.into_iter().try_for_each(join)?;
        Ok(self.kept.lock().unwrap_or_else(PoisonError::into_inner).text())
    }

    fn stream(&mut self, onward: Onward) -> Result<Stdio, HostError> {
        let (ours, theirs) = channel(onward)?;
        let (kept, ended) = (Arc::clone(&self.kept), Arc::clone(&self.ended));
        self.threads.push(spawn("output".to_owned(), move || {
            copy(&ours, onward, &kept, &ended).context("cannot pass a program's output on")
        })?);
        Ok(theirs.into())
    }
}

/// Our end and the program's.
fn channel(onward: Onward) -> Result<(OwnedFd, OwnedFd), HostError> {
    let stdout = io::stdout();
    let stderr = io::stderr();
    let (ours, is_terminal) = match onward {
        Onward::Output => (stdout.as_fd(), stdout.is_terminal()),
        Onward::Error => (stderr.as_fd(), stderr.is_terminal()),
    };
    if !is_terminal {
        return pipe2(OFlag::O_CLOEXEC).context("cannot create a pipe");
    }
    let action = "cannot give a program a terminal";
    let mut size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the kernel writes one `Winsize`, where it writes at all.
    let _ = unsafe { libc::ioctl(ours.as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) };
    let pair = openpty(Some(&size), None).context(action)?;
    // What it prints is put in shape by the terminal that it ends in.
    let mut settings = tcgetattr(&pair.slave).context(action)?;
    cfmakeraw(&mut settings);
    tcsetattr(&pair.slave, SetArg::TCSANOW, &settings).context(action)?;
    Ok((pair.master, pair.slave))
}

/// Copies until the stream ends, or the program has and nothing is left.
fn copy(
    from: &OwnedFd,
    onward: Onward,
    kept: &Mutex<Kept>,
    ended: &AtomicBool,
) -> Result<(), io::Error> {
    let to = match onward {
        Onward::Output => dup(io::stdout().as_fd())?,
        Onward::Error => dup(io::stderr().as_fd())?,
    };
    let (mut to, mut goes_on, mut chunk) = (File::from(to), true, vec![0; 1 << 14]);
    loop {
        let has_ended = ended.load(Ordering::Acquire);
        let mut ready = [PollFd::new(from.as_fd(), PollFlags::POLLIN)];
        match poll(&mut ready, PollTimeout::from(PATIENCE_MS)) {
            Ok(0) if has_ended => return Ok(()),
            Ok(0) | Err(Errno::EINTR) => continue,
            woken => woken?,
        };
        let length = match nix::unistd::read(from, &mut chunk) {
            // A terminal that nobody has open any more says EIO.
            Ok(0) | Err(Errno::EIO) => return Ok(()),
            read => read?,
        };
        kept.lock().unwrap_or_else(PoisonError::into_inner).add(&chunk[..length]);
        // Whoever read it may have gone; the run goes on.
        goes_on = goes_on && to.write_all(&chunk[..length]).is_ok();
    }
}

/// The beginning and the end of what was printed.
#[derive(Debug, Default)]
struct Kept {
    first: Vec<u8>,
    last: VecDeque<u8>,
    left_out: usize,
}

impl Kept {
    fn add(&mut self, bytes: &[u8]) {
        let (first, rest) = bytes.split_at(bytes.len().min(KEPT - self.first.len()));
        self.first.extend(first);
        self.last.extend(rest);
        let too_many = self.last.len().saturating_sub(KEPT);
        self.last.drain(..too_many);
        self.left_out += too_many;
    }

    fn text(&mut self) -> String {
        let first = String::from_utf8_lossy(&self.first);
        let last = String::from_utf8_lossy(self.last.make_contiguous());
        match self.left_out {
            0 => format!("{first}{last}"),
            count => format!("{first}\n[{count} bytes left out]\n{last}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_kept_with_its_beginning_and_its_end() {
        let mut tee = Tee::default();
        let mut command = Command::new("sh");
        let script = "echo first; i=0; while [ $i -lt 3000 ]; do echo 0123456789012345678901234567890; i=$((i+1)); done; \
                      echo last";
        command.arg("-c").arg(script);
        tee.connect(&mut command, Onward::Error, Onward::Error).unwrap();
        assert!(command.status().unwrap().success());
        // As the one who spawned it does: its ends of the pipes are the program's alone.
        drop(command);
        let text = tee.finish().unwrap();
        assert!(text.starts_with("first\n0123456789") && text.ends_with("last\n"), "{text}");
        assert!(text.len() < 2 * KEPT + 100 && text.contains("bytes left out]"));
    }

    #[test]
    fn a_child_that_stays_does_not_hold_the_end_up() {
        let mut tee = Tee::default();
        let mut command = Command::new("sh");
        command.arg("-c").arg("echo here; sleep 20 &");
        tee.connect(&mut command, Onward::Error, Onward::Error).unwrap();
        command.status().unwrap();
        assert_eq!(tee.finish().unwrap(), "here\n");
    }
}
