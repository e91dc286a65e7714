//! Capture files of a run's packets, next to the run's other results.

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use skyhop_files::write_error;
use skyhop_units::{Bytes, UtcInstant};
use skyhop_wire::{CapturedPacket, LinkEnd, pcapng};

use crate::{FileError, Piece, Sink};

/// Packets to capture, and the files for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capture {
    /// First file, in the format pcapng. Further ones have their number before the ending.
    pub file: PathBuf,
    /// Ids of the flows; `None` for all.
    pub flows: Option<Vec<u32>>,
    /// Size from which on a new file begins.
    pub file_bytes: Option<Bytes>,
    /// Number of files that stay; older ones are removed. `None` for all.
    pub files: Option<u32>,
    /// Begin of the run.
    pub start: UtcInstant,
}

/// Sink that writes packets to capture files, and hands the other pieces on.
pub struct Capturing<'s> {
    run: &'s mut (dyn Sink + Send),
    capture: Capture,
    /// Blocks at the begin of each file.
    begin: Vec<u8>,
    open: Option<OpenFile>,
    /// Number of files so far.
    number: u32,
}

/// Capture file that is being written.
struct OpenFile {
    path: PathBuf,
    writer: BufWriter<File>,
    bytes: u64,
}

impl<'s> Capturing<'s> {
    /// Create the sink around that of the run.
    pub fn new(run: &'s mut (dyn Sink + Send), capture: Capture) -> Self {
        Self { run, capture, begin: Vec::new(), open: None, number: 0 }
    }

    /// Begin the first file; each link has three interfaces ([`LinkEnd`]).
    fn begin(&mut self, links: &[String]) -> Result<(), FileError> {
        let program = concat!("skyhop ", env!("CARGO_PKG_VERSION"));
        let ends = |link| LinkEnd::ALL.map(|end| end.name(link));
        self.begin = pcapng::begin(program, links.iter().flat_map(|link| ends(link)));
        self.next_file()
    }

    fn packets(&mut self, packets: &[CapturedPacket]) -> Result<(), FileError> {
        for packet in packets {
            let most = self.capture.file_bytes.map_or(u64::MAX, Bytes::as_u64);
            if self.open.as_ref().is_some_and(|open| open.bytes >= most) {
                self.next_file()?;
            }
            let block = pcapng::packet(packet, self.capture.start);
            self.open.as_mut().map_or(Ok(()), |open| open.write(&block))?;
        }
        Ok(())
    }

    fn next_file(&mut self) -> Result<(), FileError> {
        self.finish()?;
        self.number += 1;
        let path = numbered(&self.capture.file, self.number);
        let file = File::create(&path).map_err(|error| write_error(&path, error))?;
        let mut open = OpenFile { path, writer: BufWriter::new(file), bytes: 0 };
        open.write(&self.begin)?;
        self.open = Some(open);
        let oldest = self.capture.files.and_then(|files| self.number.checked_sub(files));
        match oldest.filter(|number| *number > 0).map(|number| numbered(&self.capture.file, number))
        {
            Some(path) => fs::remove_file(&path).map_err(|error| write_error(&path, error)),
            None => Ok(()),
        }
    }

    /// Complete the file that is open.
    fn finish(&mut self) -> Result<(), FileError> {
        match self.open.take() {
            Some(mut open) => open.writer.flush().map_err(|error| write_error(&open.path, error)),
            None => Ok(()),
        }
    }
}

impl OpenFile {
    fn write(&mut self, block: &[u8]) -> Result<(), FileError> {
        self.bytes += block.len() as u64;
        self.writer.write_all(block).map_err(|error| write_error(&self.path, error))
    }
}

/// Path of the file with this number: that of the first one, with "-2", "-3", … before its ending.
fn numbered(file: &Path, number: u32) -> PathBuf {
    if number == 1 {
        return file.to_owned();
    }
    let mut name = file.file_stem().unwrap_or_default().to_owned();
    name.push(format!("-{number}"));
    if let Some(ending) = file.extension() {
        name.push(".");
        name.push(ending);
    }
    file.with_file_name(name)
}

impl Sink for Capturing<'_> {
    fn write(&mut self, piece: Piece) -> Result<(), FileError> {
        match &piece {
            Piece::Begin(begin) => self.begin(&begin.links)?,
            Piece::Packets(packets) => return self.packets(packets),
            Piece::Run(_) => self.finish()?,
            _ => {}
        }
        self.run.write(piece)
    }

    fn takes_packets_of(&self, flow: u32) -> bool {
        self.capture.flows.as_ref().is_none_or(|flows| flows.contains(&flow))
    }
}

#[cfg(test)]
mod tests {
    use skyhop_units::Instant;

    use super::*;
    use crate::{RunData, RunHeader};

    fn captured(second: u64) -> CapturedPacket {
        CapturedPacket {
            at: Instant::from_nanos(second * 1_000_000_000),
            interface: 0,
            outbound: true,
            ip_bytes: 1500,
            headers: vec![0; 40],
            comment: None,
        }
    }

    #[test]
    fn files_follow_each_other_and_the_last_ones_stay() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("run.pcapng");
        let start = UtcInstant::from_unix_nanos(0);
        let bytes = Some(Bytes::new(400));
        let capture =
            Capture { file, flows: Some(vec![3]), file_bytes: bytes, files: Some(2), start };
        let mut data = RunData::default();
        let mut sink = Capturing::new(&mut data, capture);
        assert!(sink.takes_packets_of(3) && !sink.takes_packets_of(0));
        let header = RunHeader { links: vec!["path".to_owned()], ..RunHeader::default() };
        sink.write(Piece::Begin(header)).unwrap();
        sink.write(Piece::Packets((0..10).map(captured).collect())).unwrap();
        sink.write(Piece::Run(serde_json::Value::Null)).unwrap();
        let names = fs::read_dir(directory.path()).unwrap().map(|file| file.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        let number = sink.number;
        assert!(number > 3, "there are {number} files");
        assert_eq!(names, [number - 1, number].map(|number| format!("run-{number}.pcapng")));
        assert_eq!(data.begin.links, ["path"]);
    }

    #[test]
    fn a_directory_that_does_not_exist_is_named() {
        let file = Path::new("/no/such/run.pcapng").to_owned();
        let start = UtcInstant::from_unix_nanos(0);
        let capture = Capture { file, flows: None, file_bytes: None, files: None, start };
        let mut data = RunData::default();
        let error = Capturing::new(&mut data, capture).begin(&[]).unwrap_err();
        assert!(error.to_string().contains("/no/such/run.pcapng"), "{error}");
    }
}
