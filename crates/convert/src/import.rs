//! Import of other tools' logs as paths: opens the files and chooses the parser.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use skyhop_model::other_kind;
use skyhop_path::Endpoint;
use skyhop_path::import::{
    AccessDirection, ImportError, Imported, LeoemLogOptions, MeasuredOptions, parse_csv,
    parse_iperf3, parse_irtt, parse_leocc, parse_leocc_delays, parse_leoem_log, parse_mahimahi,
    parse_ping,
};
use skyhop_units::Duration;

use crate::format::{Format, Options};
use crate::{ConvertError, kind};

/// Formats that [`import_log`] reads.
pub const FORMATS: [Format; 7] = [
    Format { name: "leoem", options: &[] },
    Format { name: "ping", options: &["interval"] },
    Format { name: "irtt", options: &[] },
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
    let mut file = open(path)?;
    let format = match format {
        Some(format) => format,
        None => {
            let format = detect(&mut file, path)?;
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
    let parsed = match format {
        "leoem" => {
            let MeasuredOptions { from, to, .. } = measured;
            let options = LeoemLogOptions { from, to, ..LeoemLogOptions::default() };
            parse_leoem_log(file, &options).map(|trace| Imported::whole(trace, "frames"))
        }
        "ping" => parse_ping(file, &measured),
        "irtt" => parse_irtt(file, &measured),
        "csv" => parse_csv(file, &measured),
        "iperf3" => parse_iperf3(file, &measured),
        "mahimahi" => parse_mahimahi(file, &measured),
        _ => {
            let delay_file = delay_file(path, &given)?;
            let delays = parse_leocc_delays(open(&delay_file)?)
                .map_err(|error| wrong_log(&delay_file, &error))?;
            parse_leocc(file, &delays, &measured)
        }
    };
    parsed.map_err(|error| wrong_log(path, &error))
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
        None => default.direction,
        Some("down") => AccessDirection::Down,
        Some("up") => AccessDirection::Up,
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

/// Open a file, "-" for the standard input, and decompress it if it is gzipped. A file of a kind that is not read is an
/// error.
pub(crate) fn open(path: &Path) -> Result<Box<dyn BufRead + Send>, ConvertError> {
    let wrong = |source| unreadable_file(path, source);
    let raw: Box<dyn Read + Send> = if path == Path::new("-") {
        Box::new(std::io::stdin())
    } else {
        Box::new(File::open(path).map_err(wrong)?)
    };
    let mut reader = BufReader::new(raw);
    let gzipped = reader.fill_buf().map_err(wrong)?.starts_with(&GZIP_MAGIC);
    let plain: Box<dyn Read + Send> =
        if gzipped { Box::new(MultiGzDecoder::new(reader)) } else { Box::new(reader) };
    let mut text = BufReader::new(plain);
    if let Some(what) = other_kind(text.fill_buf().map_err(wrong)?) {
        return Err(ConvertError::OtherKind { path: path.to_owned(), what });
    }
    without_marks(text).map_err(wrong)
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
