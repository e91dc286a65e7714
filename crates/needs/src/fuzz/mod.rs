//! Readers of what comes from outside, tried with damaged files.
//!
//! A [`Trial`] begins with whole files of a format, damages them ([`damage`]) and gives them to the format's reader,
//! which has to read them or to refuse them in one line, without a panic, and within bounds of time and memory. What a
//! trial finds it keeps, as small as it can make it, in tests/damaged/FORMAT, whose files every later trial begins with.

mod damage;
mod meter;

use std::cell::Cell;
use std::env;
use std::fmt::Display;
use std::fs::{self, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Write;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use proptest::prelude::Strategy;
use proptest::test_runner::{
    Config, RngSeed, TestCaseError, TestCaseResult, TestError, TestRunner,
};

use crate::{SOAK, cases};
use damage::{Damage, Kind};

/// Names the file that trials append what they did to, a line each, its fields apart by tabs: fuzz, the format, how many
/// cases, the seed, "ok" or what was found.
pub const RECORD: &str = "SKYHOP_TRIALS";
/// The seed of a trial's damage; without it [`FIXED_SEED`], or a fresh one where [`SOAK`] is set.
pub const SEED: &str = "SKYHOP_SEED";
/// The seed of `make test`, which does the same damage in every run.
const FIXED_SEED: u64 = 1;

/// How many damaged files a trial makes; `make soak` has twenty times as many.
const USUAL: u32 = 500;
/// Of damage to one file.
const MOST_CHANGES: usize = 6;
/// The longest message, of a list of names for instance.
const LONGEST_MESSAGE: usize = 2_500;
/// How much a reader may have allocated at a time.
const MOST_BYTES: isize = 192 << 20;
/// How long a reader may compute: many times what any takes, on a slow machine too.
const MOST_CPU: Duration = Duration::from_secs(10);
/// How long a damaged file is made less so.
const SHRINKING_MS: u32 = 60_000;
/// After which a reader is taken to hang, and the test is ended with it.
const PATIENCE: Duration = Duration::from_secs(180);

/// A format and whole files of it.
pub struct Trial<'t> {
    format: &'t str,
    samples: Vec<Vec<u8>>,
    kind: Kind,
    usual: u32,
}

impl<'t> Trial<'t> {
    /// Of text: its numbers, words, marks and lines are what is damaged.
    pub fn of_text<S: AsRef<[u8]>>(format: &'t str, samples: impl IntoIterator<Item = S>) -> Self {
        Self::new(format, Kind::Text, samples)
    }

    /// Of other bytes: lengths and counts in any width, pieces, bits.
    pub fn of_bytes<S: AsRef<[u8]>>(format: &'t str, samples: impl IntoIterator<Item = S>) -> Self {
        Self::new(format, Kind::Bytes, samples)
    }

    fn new<S: AsRef<[u8]>>(
        format: &'t str,
        kind: Kind,
        samples: impl IntoIterator<Item = S>,
    ) -> Self {
        let samples = samples.into_iter().map(|sample| sample.as_ref().to_vec()).collect();
        Self { format, samples, kind, usual: USUAL }
    }

    /// Tries the reader. It says of a file that it has read it, or why not, and panics where what it read is not right.
    ///
    /// # Panics
    /// When something is found, or when no file is refused: then nothing is tried.
    #[track_caller]
    pub fn run<E: Display>(self, read: impl Fn(&[u8]) -> Result<(), E>) {
        for sample in &self.samples {
            if let Err(error) = read(sample) {
                panic!("{}: a whole file is refused: {error}", self.format);
            }
        }
        let seed = seed();
        let tried = Tried {
            format: self.format,
            read,
            refused: Cell::new(0),
            alive: watched(self.format, seed),
        };
        let kept = kept(self.format);
        let count = cases(self.usual);
        let found = kept.iter().find_map(|(file, bytes)| {
            let what = tried.attempt(bytes).err()?;
            Some(format!("{what} ({})", file.display()))
        });
        let found = found.or_else(|| tried.search(&self, seed, count));
        let done = kept.len() as u64 + u64::from(count);
        record(self.format, done, seed, found.as_deref().unwrap_or("ok"));
        let _ = fs::remove_file(current(self.format));
        if let Some(what) = found {
            panic!("{}: {what}; the same again: {SEED}={seed}", self.format);
        }
        assert!(tried.refused.get() > 0, "{}: no damaged file is refused", self.format);
    }
}

/// A reader at work.
struct Tried<'t, R> {
    format: &'t str,
    read: R,
    refused: Cell<u64>,
    alive: Sender<()>,
}

impl<R, E: Display> Tried<'_, R>
where
    R: Fn(&[u8]) -> Result<(), E>,
{
    /// What is wrong with the least damaged file of `count` with which something is; that file is kept.
    fn search(&self, trial: &Trial<'_>, seed: u64, count: u32) -> Option<String> {
        let config = Config {
            cases: count,
            failure_persistence: None,
            rng_seed: RngSeed::Fixed(seed),
            max_shrink_time: SHRINKING_MS,
            ..Config::default()
        };
        let damage = Damage::strategy(trial.kind, MOST_CHANGES);
        let damaged = damage.prop_map(|damage| damage.of(&trial.samples));
        match TestRunner::new(config).run(&damaged, |bytes| self.attempt(&bytes)) {
            Ok(()) => None,
            Err(TestError::Fail(what, bytes)) => {
                Some(format!("{what} ({})", keep(self.format, &bytes).display()))
            }
            Err(TestError::Abort(why)) => Some(why.to_string()),
        }
    }

    fn attempt(&self, bytes: &[u8]) -> TestCaseResult {
        // What ends the whole process leaves this file behind.
        let _ = fs::write(current(self.format), bytes);
        let _ = self.alive.send(());
        let begun = cpu_time();
        let (read, most_bytes) =
            meter::most_held(|| panic::catch_unwind(AssertUnwindSafe(|| (self.read)(bytes))));
        let took = cpu_time().saturating_sub(begun);
        let fail = |what: String| Err(TestCaseError::fail(what));
        if most_bytes > MOST_BYTES {
            return fail(format!("it takes {} MB of memory", most_bytes >> 20));
        }
        if took > MOST_CPU {
            return fail(format!("it takes {} s", took.as_secs()));
        }
        match read {
            Err(panicked) => fail(format!("a panic: {}", said(&*panicked))),
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                self.refused.set(self.refused.get() + 1);
                unfit(&error.to_string()).map_or(Ok(()), fail)
            }
        }
    }
}

/// Checks that a text that readers make of a file's own words can be shown as a line.
///
/// # Panics
/// When it cannot.
#[track_caller]
pub fn check_line(text: &str) {
    if let Some(what) = unfit(text) {
        panic!("{what}");
    }
}

/// Why a text cannot be an error's message.
fn unfit(message: &str) -> Option<String> {
    let begin: String = message.chars().take(200).collect();
    if message.trim().is_empty() {
        return Some("a message without a word".to_owned());
    }
    if message.chars().any(|letter| letter.is_control() || turns(letter)) {
        return Some(format!("a message is not one line of plain text: {begin:?}"));
    }
    let length = message.chars().count();
    (length > LONGEST_MESSAGE).then(|| format!("a message has {length} letters: {begin:?}"))
}

/// Whether a letter is shown as none, but changes where a line ends or in which direction it is read.
fn turns(letter: char) -> bool {
    matches!(letter, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

fn said(panicked: &(dyn std::any::Any + Send)) -> String {
    let text = panicked.downcast_ref::<String>().cloned();
    text.or_else(|| panicked.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_default()
}

/// What this thread has computed so far.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// Ends the process when nothing is sent for long.
fn watched(format: &str, seed: u64) -> Sender<()> {
    let (alive, heard) = mpsc::channel();
    let word = format!(
        "{format}: no end after {} s with {}; the same again: {SEED}={seed}\n",
        PATIENCE.as_secs(),
        current(format).display()
    );
    thread::spawn(move || {
        loop {
            match heard.recv_timeout(PATIENCE) {
                Ok(()) => {}
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {
                    // Not a macro, whose words would be kept for the test's end, which does not come.
                    let _ = std::io::stderr().write_all(word.as_bytes());
                    process::abort();
                }
            }
        }
    });
    alive
}

/// # Panics
/// When the variable is not a whole number.
fn seed() -> u64 {
    match env::var(SEED) {
        Ok(text) => text.parse().expect("SKYHOP_SEED is a whole number"),
        Err(_) if env::var_os(SOAK).is_some() => {
            u64::from(RandomState::new().build_hasher().finish() as u32)
        }
        Err(_) => FIXED_SEED,
    }
}

fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn directory(format: &str) -> PathBuf {
    checkout().join("tests/damaged").join(format.replace(' ', "-"))
}

/// The files that were found before.
fn kept(format: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let Ok(entries) = fs::read_dir(directory(format)) else { return Vec::new() };
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.sort();
    files.into_iter().filter_map(|file| Some((file.clone(), fs::read(file).ok()?))).collect()
}

fn keep(format: &str, bytes: &[u8]) -> PathBuf {
    let mut digest = std::hash::DefaultHasher::new();
    digest.write(bytes);
    let file = directory(format).join(format!("{:08x}", digest.finish() as u32));
    let kept = fs::create_dir_all(directory(format)).and_then(|()| fs::write(&file, bytes));
    // The failure that it shows is told all the same.
    kept.unwrap_or_else(|error| eprintln!("cannot keep {}: {error}", file.display()));
    file
}

/// The file that is being tried.
fn current(format: &str) -> PathBuf {
    let directory = checkout().join("build/damaged");
    let _ = fs::create_dir_all(&directory);
    directory.join(format.replace(' ', "-"))
}

fn record(format: &str, done: u64, seed: u64, result: &str) {
    let result: String =
        result.chars().map(|c| if c.is_control() { ' ' } else { c }).take(300).collect();
    let line = format!("fuzz\t{format}\t{done}\t{seed}\t{result}\n");
    print!("{line}");
    if let Some(file) = env::var_os(RECORD) {
        let record = OpenOptions::new().create(true).append(true).open(&file);
        // One write, so that lines of several processes do not mix.
        let written = record.and_then(|mut file| file.write_all(line.as_bytes()));
        written.unwrap_or_else(|error| panic!("{file:?}: cannot write: {error}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a trial says of a reader.
    fn verdict(read: impl Fn(&[u8]) -> Result<(), String>) -> Option<String> {
        let trial = Trial::of_text("a test", ["one = 1\ntwo = 2\n"]);
        let (alive, _heard) = mpsc::channel();
        let tried = Tried { format: "a test", read, refused: Cell::new(0), alive };
        let found = tried.search(&trial, 7, 300);
        let _ = fs::remove_dir_all(directory("a test"));
        let _ = fs::remove_file(current("a test"));
        found
    }

    #[test]
    fn what_readers_may_not_do_is_found() {
        let has = |bytes: &[u8], part: &[u8]| bytes.windows(part.len()).any(|seen| seen == part);
        assert_eq!(verdict(|_| Err("line 1: no".to_owned())), None);
        let broken =
            verdict(
                |bytes| {
                    if has(bytes, b"two") { Ok(()) } else { Err("line 1:\nno".to_owned()) }
                },
            );
        assert!(broken.unwrap().contains("not one line"));
        let turned = verdict(|_| Err("line \u{202e}1: no".to_owned()));
        assert!(turned.unwrap().contains("not one line"));
        let panics = verdict(|bytes| {
            assert!(has(bytes, b"one"), "one is gone");
            Ok(())
        });
        assert!(panics.unwrap().contains("a panic: one is gone"));
        let greedy = verdict(|bytes| {
            let size = if has(bytes, b"one") { 1 } else { MOST_BYTES as usize + 1 };
            Err(format!("{} bytes", Vec::<u8>::with_capacity(size).capacity()))
        });
        assert!(greedy.unwrap().contains("MB of memory"));
    }
}
