//! Import of other tools' logs as paths: opens the files and chooses the parser.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flate2::bufread::MultiGzDecoder;
use skyhop_model::other_kind;
use skyhop_path::Endpoint;
use skyhop_path::import::{
    AccessDirection, ImportError, Imported, LeoemLogOptions, MeasuredOptions, parse_atlas,
    parse_csv, parse_iperf3, parse_irtt, parse_leocc, parse_leocc_delays, parse_leoem_log,
    parse_mahimahi, parse_ping,
};
use skyhop_units::Duration;

use crate::format::{Format, Options};
use crate::{ConvertError, kind};

/// Formats that [`import_log`] reads.
pub const FORMATS: [Format; 8] = [
    Format { name: "leoem", options: &[] },
    Format { name: "ping", options: &["interval"] },
    Format { name: "irtt", options: &[] },
    Format { name: "atlas", options: &[] },
    Format { name: "csv", options: &["direction", "rtt", "outages"] },
    Format { name: "iperf3", options: &["direction", "rtt"] },
    Format { name: "mahimahi", options: &["rtt"] },
    Format { name: "leocc", options: &["delay_file"] },
];

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const UTF8_MARK: [u8; 3] = [0xef, 0xbb, 0xbf];
/// Byte order mark of little-endian UTF-16, in which PowerShell writes a program's output to a file.
const UTF16_MARK: [u8; 2] = [0xff, 0xfe];
/// Largest size of a text in UTF-16, in bytes: twice the limit of other texts.
const LONGEST_UTF16: u64 = 256 * 1024 * 1024;

/// Properties of the path that a log does not contain, as the user gave them.
#[derive(Debug, Clone, Default)]
pub struct ImportOptions {
    /// End that sends; for logs of probes, the one that sent the probes.
    pub from: Option<Endpoint>,
    /// End that receives; for logs of probes, the one that answered them.
    pub to: Option<Endpoint>,
    /// Options of [`FORMATS`], as text.
    pub texts: BTreeMap<String, String>,
}

/// Read a log, plain or gzipped, in one of [`FORMATS`]; without a format, it is told by the file. The name "-" is the
/// standard input.
///
/// # Errors
/// The format is unknown or does not have one of the options, the file cannot be read, or the log has an
/// error; the message states the line number.
pub fn import_log(
    path: &Path,
    format: Option<&str>,
    options: &ImportOptions,
) -> Result<Imported, ConvertError> {
    let given = Options { origin: &path.display().to_string(), texts: &options.texts };
    format.map_or(Ok(()), |format| given.check(&FORMATS, format))?;
    let measured = measured_options(options, &given)?;
    let mut opened = open(path)?;
    let cut = opened.cut.clone();
    let format = match format {
        Some(format) => format,
        None => {
            let format = detect(&mut opened.file, path)?;
            if format == "pcap" {
                let what = "is a packet capture, which has no path: skyhop blind reads it";
                return Err(ConvertError::Content {
                    origin: given.origin.to_owned(),
                    what: what.to_owned(),
                });
            }
            given.check(&FORMATS, format)?;
            format
        }
    };
    let file = opened.whole_part(format);
    let parsed = match format {
        "leoem" => {
            let MeasuredOptions { from, to, .. } = measured;
            let options = LeoemLogOptions { from, to, ..LeoemLogOptions::default() };
            parse_leoem_log(file, &options).map(|trace| Imported::whole(trace, "frames"))
        }
        "ping" => parse_ping(file, &measured),
        "irtt" => parse_irtt(file, &measured),
        "atlas" => parse_atlas(file, &measured),
        "csv" => parse_csv(file, &measured),
        "iperf3" => parse_iperf3(file, &measured),
        "mahimahi" => parse_mahimahi(file, &measured),
        _ => {
            let delay_file = delay_file(path, &given)?;
            let delays = parse_leocc_delays(open(&delay_file)?.whole_part(format))
                .map_err(|error| wrong_log(&delay_file, &error))?;
            parse_leocc(file, &delays, &measured)
        }
    };
    match parsed {
        Ok(mut imported) if cut.is_cut() => {
            imported.account.notes.push(Cut::NOTE.to_owned());
            Ok(imported)
        }
        parsed => parsed.map_err(|error| cut.explain(wrong_log(path, &error))),
    }
}

/// Tell the format of a log by its begin.
pub(crate) fn detect(file: &mut impl BufRead, path: &Path) -> Result<&'static str, ConvertError> {
    let start = file.fill_buf().map_err(|source| unreadable_file(path, source))?;
    Ok(kind::format_of(start, path))
}

fn unreadable_file(path: &Path, source: std::io::Error) -> ConvertError {
    ConvertError::Read { path: path.to_owned(), source }
}

fn wrong_log(path: &Path, error: &ImportError) -> ConvertError {
    ConvertError::Content { origin: path.display().to_string(), what: error.to_string() }
}

fn measured_options(
    options: &ImportOptions,
    given: &Options<'_>,
) -> Result<MeasuredOptions, ConvertError> {
    let default = MeasuredOptions::default();
    let direction = match given.text("direction") {
        None => None,
        Some("down") => Some(AccessDirection::Down),
        Some("up") => Some(AccessDirection::Up),
        Some(other) => {
            let what = format!("\"{other}\" is not a direction; expected down or up");
            return Err(given.wrong("direction", what));
        }
    };
    let interval = given.quantity("interval")?;
    if interval == Some(Duration::ZERO) {
        return Err(given.wrong("interval", "0 s is not a time between two probes; expected more"));
    }
    Ok(MeasuredOptions {
        from: options.from.clone().unwrap_or(default.from),
        to: options.to.clone().unwrap_or(default.to),
        rtt: given.quantity("rtt")?,
        interval,
        outages: outages(given)?,
        direction,
    })
}

/// Parse the option `outages`: begins and ends in ns, such as `5-8 12-20`, in order and disjoint.
fn outages(given: &Options<'_>) -> Result<Vec<(i64, i64)>, ConvertError> {
    let mut last_ns = i64::MIN;
    let mut parse = |text: &str| {
        let (begin, end) = text.split_once('-')?;
        let (begin_ns, end_ns) = (begin.parse::<i64>().ok()?, end.parse::<i64>().ok()?);
        let is_next = last_ns < begin_ns && begin_ns < end_ns;
        last_ns = end_ns;
        is_next.then_some((begin_ns, end_ns))
    };
    let text = given.text("outages").unwrap_or_default();
    let parsed: Option<Vec<(i64, i64)>> = text.split_whitespace().map(&mut parse).collect();
    parsed.ok_or_else(|| given.wrong("outages", "expected BEGIN-END in ns, in order and disjoint"))
}

/// Find the file of delays that belongs to a LeoCC trace: the one that the user named, or one in the same
/// directory with "delay" in place of "bw" in its name, gzipped or not.
fn delay_file(path: &Path, given: &Options<'_>) -> Result<PathBuf, ConvertError> {
    if let Some(named) = given.text("delay_file") {
        return Ok(PathBuf::from(named));
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let other = name.replacen("bw", "delay", 1);
    let plain = other.strip_suffix(".gz").unwrap_or(&other);
    let candidates = [plain.to_owned(), format!("{plain}.gz")];
    let found = candidates
        .iter()
        .map(|name| path.with_file_name(name))
        .find(|candidate| other != name && candidate.is_file());
    found.ok_or_else(|| {
        let what = format!(
            "no file of delays in the same directory ({name} with \"delay\" in place of \"bw\"); name one"
        );
        given.wrong("delay_file", what)
    })
}

/// Opened file, decompressed, and whether its end is missing.
pub(crate) struct Opened {
    pub file: Box<dyn BufRead + Send>,
    pub cut: Cut,
}

impl Opened {
    /// Reader of the file that leaves out a line that is cut; the readers of JSON leave out a cut document themselves.
    pub fn whole_part(self, format: &str) -> Box<dyn BufRead + Send> {
        if ["pcap", "irtt", "atlas", "iperf3"].contains(&format) {
            return self.file;
        }
        Box::new(BufReader::new(WholeLines::new(self.file, self.cut)))
    }
}

/// Whether a compressed file ended before its end was written.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cut(Arc<AtomicBool>);

impl Cut {
    /// Remark for the user on a file of which only the lines before the cut were read.
    const NOTE: &str = "the compressed file ends early: what stands whole before its end counts";

    pub fn is_cut(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Add to an error that the file is cut, which may be its cause.
    pub fn explain(&self, error: ConvertError) -> ConvertError {
        match error {
            ConvertError::Content { origin, what } if self.is_cut() => ConvertError::Content {
                origin,
                what: format!("{what} (the compressed file ends early)"),
            },
            other => other,
        }
    }
}

/// Reader of a compressed file, for which a missing end is the end.
struct Decompressed<R> {
    file: MultiGzDecoder<R>,
    cut: Cut,
}

impl<R: BufRead> Read for Decompressed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self.file.read(buffer) {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                self.cut.0.store(true, Ordering::Relaxed);
                Ok(0)
            }
            other => other,
        }
    }
}

/// Reader of a text that leaves out the last line if the file is cut within it.
struct WholeLines<R> {
    file: R,
    cut: Cut,
    /// Bytes that were read and not passed on, and the number of them that belong to whole lines.
    held: Vec<u8>,
    whole: usize,
    passed: usize,
    has_ended: bool,
}

/// Number of bytes that [`WholeLines`] reads at a time.
const PIECE: usize = 64 * 1024;
/// Length of a line from which on [`WholeLines`] does not hold it back, in bytes.
const LONGEST_HELD: usize = 1024 * 1024;

impl<R> WholeLines<R> {
    fn new(file: R, cut: Cut) -> Self {
        Self { file, cut, held: Vec::new(), whole: 0, passed: 0, has_ended: false }
    }
}

impl<R: Read> Read for WholeLines<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        while self.passed == self.whole && !self.has_ended {
            self.held.drain(..self.passed);
            self.passed = 0;
            let before = self.held.len();
            let read = self.file.by_ref().take(PIECE as u64).read_to_end(&mut self.held)?;
            self.has_ended = read == 0;
            let line_end = self.held[before..].iter().rposition(|byte| *byte == b'\n');
            self.whole = match line_end {
                Some(end) => before + end + 1,
                None if self.has_ended && !self.cut.is_cut() => self.held.len(),
                // A text without line ends is passed on as it comes.
                None if self.held.len() > LONGEST_HELD => self.held.len(),
                None => 0,
            };
        }
        let count = buffer.len().min(self.whole - self.passed);
        buffer[..count].copy_from_slice(&self.held[self.passed..self.passed + count]);
        self.passed += count;
        Ok(count)
    }
}

/// Open a file, "-" for the standard input, and decompress it if it is gzipped. A file of a kind that is not read is an
/// error.
pub(crate) fn open(path: &Path) -> Result<Opened, ConvertError> {
    let wrong = |source| unreadable_file(path, source);
    let raw: Box<dyn Read + Send> = if path == Path::new("-") {
        Box::new(std::io::stdin())
    } else {
        Box::new(File::open(path).map_err(wrong)?)
    };
    let mut reader = BufReader::new(raw);
    let gzipped = reader.fill_buf().map_err(wrong)?.starts_with(&GZIP_MAGIC);
    let cut = Cut::default();
    let plain: Box<dyn Read + Send> = if gzipped {
        Box::new(Decompressed { file: MultiGzDecoder::new(reader), cut: cut.clone() })
    } else {
        Box::new(reader)
    };
    let mut text = BufReader::new(plain);
    if let Some(what) = other_kind(text.fill_buf().map_err(wrong)?) {
        return Err(ConvertError::OtherKind { path: path.to_owned(), what });
    }
    Ok(Opened { file: without_marks(text).map_err(wrong)?, cut })
}

/// Skip the byte order mark that Windows programs write at the beginning of a text, and convert
/// UTF-16 to UTF-8.
fn without_marks(
    mut reader: BufReader<Box<dyn Read + Send>>,
) -> Result<Box<dyn BufRead + Send>, std::io::Error> {
    let begin = reader.fill_buf()?;
    if begin.starts_with(&UTF8_MARK) {
        reader.consume(UTF8_MARK.len());
    } else if begin.starts_with(&UTF16_MARK) {
        let mut bytes = Vec::new();
        reader.take(LONGEST_UTF16).read_to_end(&mut bytes)?;
        let units = bytes.chunks_exact(2).skip(1).map(|two| u16::from_le_bytes([two[0], two[1]]));
        let text: String =
            char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
        return Ok(Box::new(std::io::Cursor::new(text.into_bytes())));
    }
    Ok(Box::new(reader))
}
