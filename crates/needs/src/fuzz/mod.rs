//! Fuzzing of readers of external input with damaged files.
//!
//! A [`Trial`] starts with valid files of a format, damages them ([`damage`]) and passes them to the format's reader,
//! which must read them or refuse them with a message of one line, without a panic, and within limits of time and
//! memory. A trial keeps each failing file, minimised, in tests/damaged/FORMAT, whose files every later trial tries
//! first.

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

/// Environment variable with the file to which trials append their results, one line each of fields separated by
/// tabs: fuzz, the format, the number of cases, the seed, "ok" or the failure.
pub const RECORD: &str = "SKYHOP_TRIALS";
/// Environment variable with the seed of a trial's damage; by default [`FIXED_SEED`], or a new one if [`SOAK`] is
/// set.
pub const SEED: &str = "SKYHOP_SEED";
/// Seed in `make test`, which does the same damage in every run.
const FIXED_SEED: u64 = 1;

/// Number of damaged files per trial; `make soak` has twenty times as many.
const USUAL: u32 = 500;
/// Largest number of changes to one file.
const MOST_CHANGES: usize = 6;
/// Longest message in characters; a list of names is long.
const LONGEST_MESSAGE: usize = 2_500;
/// Limit of the memory that a reader may have allocated at a time.
const MOST_BYTES: isize = 192 << 20;
/// Limit of a reader's computing time: many times what any reader takes, on a slow machine too.
const MOST_CPU: Duration = Duration::from_secs(10);
/// Time spent on minimising a damaged file.
const SHRINKING_MS: u32 = 60_000;
/// Wall-clock time after which a reader is considered to hang, and the test process is aborted.
const PATIENCE: Duration = Duration::from_secs(180);

/// Fuzz test of one format: valid files, and their kind.
pub struct Trial<'t> {
    format: &'t str,
    samples: Vec<Vec<u8>>,
    kind: Kind,
    usual: u32,
}

impl<'t> Trial<'t> {
    /// Create a trial of a text format: numbers, words, punctuation and lines are damaged.
    pub fn of_text<S: AsRef<[u8]>>(format: &'t str, samples: impl IntoIterator<Item = S>) -> Self {
        Self::new(format, Kind::Text, samples)
    }

    /// Create a trial of a binary format: lengths and counts of any width, pieces and bits are damaged.
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

    /// Try the reader. It returns whether it could read a file, or why not, and panics if what it read is
    /// inconsistent.
    ///
    /// # Panics
    /// A failure is found, or no file is refused, which means that the trial tests nothing.
    #[track_caller]
    pub fn run<E: Display>(self, read: impl Fn(&[u8]) -> Result<(), E>) {
        for sample in &self.samples {
            if let Err(error) = read(sample) {
                panic!("{}: a whole file is refused: {error}", self.format);
            }
        }
        let seed = seed();
        let test = ReaderTest {
            format: self.format,
            read,
            refused: Cell::new(0),
            alive: watched(self.format, seed),
        };
        let kept = kept(self.format);
        let count = cases(self.usual);
        let found = kept.iter().find_map(|(file, bytes)| {
            let what = test.attempt(bytes).err()?;
            Some(format!("{what} ({})", file.display()))
        });
        let found = found.or_else(|| test.search(&self, seed, count));
        let done = kept.len() as u64 + u64::from(count);
        record(self.format, done, seed, found.as_deref().unwrap_or("ok"));
        let _ = fs::remove_file(current(self.format));
        if let Some(what) = found {
            panic!("{}: {what}; to repeat: {SEED}={seed}", self.format);
        }
        assert!(test.refused.get() > 0, "{}: no damaged file is refused", self.format);
    }
}

/// A reader under test and its statistics.
struct ReaderTest<'t, R> {
    format: &'t str,
    read: R,
    refused: Cell<u64>,
    alive: Sender<()>,
}

impl<R, E: Display> ReaderTest<'_, R>
where
    R: Fn(&[u8]) -> Result<(), E>,
{
    /// Describe the first failure among `count` damaged files, after minimising the file, which is kept.
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
        // If the whole process ends, this file remains.
        let _ = fs::write(current(self.format), bytes);
        let _ = self.alive.send(());
        let begun = cpu_time();
        let (read, most_bytes) =
            meter::peak_memory(|| panic::catch_unwind(AssertUnwindSafe(|| (self.read)(bytes))));
        let took = cpu_time().saturating_sub(begun);
        let fail = |what: String| Err(TestCaseError::fail(what));
        if most_bytes > MOST_BYTES {
            return fail(format!("it takes {} MB of memory", most_bytes >> 20));
        }
        if took > MOST_CPU {
            return fail(format!("it takes {} s", took.as_secs()));
        }
        match read {
            Err(panicked) => fail(format!("a panic: {}", panic_message(&*panicked))),
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                self.refused.set(self.refused.get() + 1);
                message_fault(&error.to_string()).map_or(Ok(()), fail)
            }
        }
    }
}

/// Check that a text that a reader derives from a file can be shown as one line.
///
/// # Panics
/// The text cannot be shown as one line.
#[track_caller]
pub fn check_line(text: &str) {
    if let Some(what) = message_fault(text) {
        panic!("{what}");
    }
}

/// Reason why a text is not a valid error message, if it is not.
fn message_fault(message: &str) -> Option<String> {
    let begin: String = message.chars().take(200).collect();
    if message.trim().is_empty() {
        return Some("a message without a word".to_owned());
    }
    if message.chars().any(|letter| letter.is_control() || redirects(letter)) {
        return Some(format!("a message is not one line of plain text: {begin:?}"));
    }
    let length = message.chars().count();
    (length > LONGEST_MESSAGE).then(|| format!("a message has {length} letters: {begin:?}"))
}

/// Whether a character is invisible but changes where a line ends or in which direction it is read.
fn redirects(letter: char) -> bool {
    matches!(letter, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

fn panic_message(panicked: &(dyn std::any::Any + Send)) -> String {
    let text = panicked.downcast_ref::<String>().cloned();
    text.or_else(|| panicked.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_default()
}

/// CPU time that this thread has used.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// Start a watchdog that aborts the process if nothing is sent for [`PATIENCE`].
fn watched(format: &str, seed: u64) -> Sender<()> {
    let (alive, heard) = mpsc::channel();
    let word = format!(
        "{format}: no end after {} s with {}; to repeat: {SEED}={seed}\n",
        PATIENCE.as_secs(),
        current(format).display()
    );
    thread::spawn(move || {
        loop {
            match heard.recv_timeout(PATIENCE) {
                Ok(()) => {}
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {
                    // The print macros would capture the text for the test's end, which does not come.
                    let _ = std::io::stderr().write_all(word.as_bytes());
                    process::abort();
                }
            }
        }
    });
    alive
}

/// Seed of the damage, from [`SEED`] or chosen.
///
/// # Panics
/// The variable is not a whole number.
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

/// Failing files of earlier trials, with their contents.
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
    // The failure is reported in any case.
    kept.unwrap_or_else(|error| eprintln!("cannot keep {}: {error}", file.display()));
    file
}

/// Path of the file that is being tried.
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
        // A single write keeps lines of several processes apart.
        let written = record.and_then(|mut file| file.write_all(line.as_bytes()));
        written.unwrap_or_else(|error| panic!("{file:?}: cannot write: {error}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Failure that a trial finds in a reader.
    fn verdict(read: impl Fn(&[u8]) -> Result<(), String>) -> Option<String> {
        let trial = Trial::of_text("a test", ["one = 1\ntwo = 2\n"]);
        let (alive, _heard) = mpsc::channel();
        let test = ReaderTest { format: "a test", read, refused: Cell::new(0), alive };
        let found = test.search(&trial, 7, 300);
        let _ = fs::remove_dir_all(directory("a test"));
        let _ = fs::remove_file(current("a test"));
        found
    }

    #[test]
    fn violations_of_readers_are_found() {
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
