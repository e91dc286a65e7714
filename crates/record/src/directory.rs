//! Run directories: everything about one run, there as a whole or not at all.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use skyhop_files::{
    FileError, Staging, clear_remains, file_beside, path_to_parquet, put_in_place, write_error,
};
use skyhop_model::AppTable;
use skyhop_path::PathTrace;

use crate::replacing::{go_on, refuse_other_than_files, replace_earlier, run_files};
use crate::segments::{Segments, join};
use crate::tables::{app_columns, event_columns, flow_columns, link_columns, probe_columns};
use crate::{AppRow, EventRow, FlowSample, LinkSample, Piece, ProbeRow, Sink};

/// What the names of directories begin with in which a run's files are before it ends.
const STAGING: &str = ".run.partial-";

/// A place for a run's results, reserved before the run begins so that a wrong place is found early.
#[derive(Debug)]
pub struct RunDirectory {
    path: PathBuf,
    created: Vec<PathBuf>,
    /// Whether its owner moves it into place when the run is whole.
    is_aside: bool,
}

impl RunDirectory {
    /// Makes sure that `path` is a directory which may be written to, and makes it where it is
    /// missing.
    ///
    /// # Errors
    /// [`FileError::NotEmpty`] unless `force`, [`FileError::NotADirectory`], [`FileError::NotAFile`]
    /// where something else has the name of one of a run's files, or that it cannot be made.
    pub fn reserve(path: &Path, force: bool) -> Result<Self, FileError> {
        if path.exists() && !path.is_dir() {
            return Err(FileError::NotADirectory { path: path.to_owned() });
        }
        let created = missing_directories(path);
        if let Err(error) = fs::create_dir_all(path) {
            let made = created.into_iter().filter(|directory| directory.exists()).collect();
            Self { path: path.to_owned(), created: made, is_aside: false }.abandon()?;
            return Err(write_error(path, error));
        }
        clear_remains(path, STAGING, |left| go_on(left, path).map_err(io::Error::other));
        let mut entries = fs::read_dir(path)
            .map_err(|source| FileError::Read { path: path.to_owned(), source })?;
        if entries.next().is_some() && !force {
            return Err(FileError::NotEmpty { path: path.to_owned() });
        }
        refuse_other_than_files(path)?;
        Ok(Self { path: path.to_owned(), created, is_aside: false })
    }

    /// An empty directory of the caller's, which moves it into its place when the run in it is whole: files are
    /// written straight into it, and a run that is given up takes it away.
    pub fn aside(path: &Path) -> Self {
        Self { path: path.to_owned(), created: Vec::new(), is_aside: true }
    }

    /// Begins to write a run over `trace` into it. Until the run has ended its tables are in segments in
    /// a hidden directory inside; an earlier run's files are replaced only when all of the new ones
    /// are whole. `path_file` is a path file that holds `trace`, where there is one that nobody changes.
    ///
    /// # Errors
    /// [`FileError::Write`] with the system's reason, a full disk for example.
    pub fn writer(
        &self,
        trace: &PathTrace,
        path_file: Option<&Path>,
    ) -> Result<RunWriter, FileError> {
        let held = match self.is_aside {
            true => fs::create_dir_all(&self.path).map(|()| None),
            false => Staging::begin(&self.path, STAGING).map(Some),
        };
        let held = held.map_err(|e| write_error(&self.path, e))?;
        let writer = RunWriter::new(held, self.path.clone());
        writer.about(put_path(trace, path_file, &writer.staging.join("path.parquet")))?;
        Ok(writer)
    }

    /// Puts a whole run's files, which lie in a directory elsewhere, into it: copies of them, in the place of an
    /// earlier run's.
    ///
    /// # Errors
    /// [`FileError::Write`] with the system's reason, a full disk for example.
    pub fn take(&self, whole: &Path) -> Result<(), FileError> {
        let staging =
            Staging::begin(&self.path, STAGING).map_err(|error| write_error(&self.path, error))?;
        for name in run_files() {
            match fs::copy(whole.join(&name), staging.path().join(&name)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(write_error(&self.path.join(name), error)),
            }
        }
        replace_earlier(staging.path(), &self.path)
    }

    /// Removes the directories that reserving made, for a run that has no results.
    ///
    /// # Errors
    /// [`FileError::Write`] where one cannot be removed.
    pub fn abandon(self) -> Result<(), FileError> {
        for made in self.created.iter().rev() {
            match fs::remove_dir(made) {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::DirectoryNotEmpty => {
                    return Ok(());
                }
                Err(error) => return Err(write_error(made, error)),
            }
        }
        Ok(())
    }
}

/// The directories on the way to `path` that do not exist yet, outermost first.
fn missing_directories(path: &Path) -> Vec<PathBuf> {
    let mut missing: Vec<PathBuf> = path
        .ancestors()
        .filter(|ancestor| !ancestor.as_os_str().is_empty())
        .take_while(|ancestor| !ancestor.exists())
        .map(Path::to_owned)
        .collect();
    missing.reverse();
    missing
}

/// Puts a path into `place`, as another name of `file` where it has one: runs over one path then have
/// one file of it.
fn put_path(trace: &PathTrace, file: Option<&Path>, place: &Path) -> Result<(), FileError> {
    // Not every file system has links, nor reaches one to another.
    if file.is_some_and(|file| fs::hard_link(file, place).is_ok()) {
        return Ok(());
    }
    put_in_place(file_beside(place, &path_to_parquet(trace)?)?, place)
}

/// A run that is being written into its directory. Dropped before its last piece has come, it leaves
/// nothing behind.
#[derive(Debug)]
pub struct RunWriter {
    /// Where the files are before they are whole; the destination itself where that is aside.
    staging: PathBuf,
    /// What holds and removes it, where it is not.
    held: Option<Staging>,
    destination: PathBuf,
    is_whole: bool,
    links: Vec<String>,
    flows: Segments<FlowSample>,
    link: Segments<LinkSample>,
    events: Segments<EventRow>,
    apps: BTreeMap<AppTable, Segments<AppRow>>,
    /// By probe: each has its rows in one place of the table.
    probes: BTreeMap<i32, Segments<ProbeRow>>,
}

impl RunWriter {
    fn new(held: Option<Staging>, destination: PathBuf) -> Self {
        let staging = held.as_ref().map_or(&*destination, Staging::path).to_owned();
        Self {
            links: Vec::new(),
            flows: Segments::new(&staging, "flows", 0),
            link: Segments::new(&staging, "link", 0),
            events: Segments::new(&staging, "events", 0),
            apps: BTreeMap::new(),
            probes: BTreeMap::new(),
            staging,
            held,
            destination,
            is_whole: false,
        }
    }

    fn write(&mut self, piece: Piece) -> Result<(), FileError> {
        match piece {
            Piece::Begin(begin) => self.links = begin.links,
            Piece::Flows(rows) => self.flows.add(rows, |row| row.t_ns, flow_columns)?,
            Piece::Link(rows) => {
                let links = &self.links;
                self.link.add(rows, |row| row.t_ns, |rows| link_columns(rows, links))?;
            }
            Piece::Events(rows) => {
                let links = &self.links;
                self.events.add(rows, |row| row.t_ns, |rows| event_columns(rows, links))?;
            }
            Piece::Probes(rows) => self.add_probes(rows)?,
            Piece::App(table, rows) => {
                let segments = self
                    .apps
                    .entry(table)
                    .or_insert_with(|| Segments::new(&self.staging, table.name(), 0));
                segments.add(rows, |row| row.t_ns, |rows| app_columns(table, rows))?;
            }
            Piece::Run(run) => self.write_json("run.json", &run)?,
            Piece::Summary(summary) => {
                self.write_json("summary.json", &summary)?;
                self.finish()?;
            }
        }
        Ok(())
    }

    fn add_probes(&mut self, rows: Vec<ProbeRow>) -> Result<(), FileError> {
        for rows in rows.chunk_by(|a, b| a.probe == b.probe) {
            let probe = rows[0].probe;
            let segments = self
                .probes
                .entry(probe)
                .or_insert_with(|| Segments::new(&self.staging, "probes", probe as u32));
            segments.add(rows.to_vec(), |row| row.t_ns, probe_columns)?;
        }
        Ok(())
    }

    fn write_json(&self, name: &str, value: &impl Serialize) -> Result<(), FileError> {
        let path = self.staging.join(name);
        let mut text = serde_json::to_string_pretty(value).map_err(|e| write_error(&path, e))?;
        text.push('\n');
        put_in_place(file_beside(&path, text.as_bytes())?, &path)
    }

    /// Puts the tables together, and everything in its place.
    fn finish(&mut self) -> Result<(), FileError> {
        let place = |name: &str| self.staging.join(format!("{name}.parquet"));
        let staging = self.staging.clone();
        fn taken<R>(from: &mut Segments<R>, staging: &Path) -> Segments<R> {
            std::mem::replace(from, Segments::new(staging, "", 0))
        }
        let links = &self.links;
        join(&taken(&mut self.flows, &staging).finish(flow_columns)?, &place("flows"))?;
        let link = taken(&mut self.link, &staging).finish(|rows| link_columns(rows, links))?;
        join(&link, &place("link"))?;
        let events = taken(&mut self.events, &staging).finish(|rows| event_columns(rows, links))?;
        join(&events, &place("events"))?;
        for (table, segments) in std::mem::take(&mut self.apps) {
            join(&segments.finish(|rows| app_columns(table, rows))?, &place(table.name()))?;
        }
        let mut probes = Vec::new();
        for (_, segments) in std::mem::take(&mut self.probes) {
            probes.extend(segments.finish(probe_columns)?);
        }
        if probes.is_empty() {
            probes = Segments::new(&self.staging, "probes", 0).finish(probe_columns)?;
        }
        join(&probes, &place("probes"))?;
        if self.held.is_some() {
            replace_earlier(&self.staging, &self.destination)?;
        }
        self.is_whole = true;
        Ok(())
    }

    /// The same error about the place that the user knows.
    fn about<T>(&self, result: Result<T, FileError>) -> Result<T, FileError> {
        let known = |path: PathBuf| match path.strip_prefix(&self.staging) {
            Ok(inside) => self.destination.join(inside),
            Err(_) => path,
        };
        result.map_err(|error| match error {
            FileError::Write { path, reason } => FileError::Write { path: known(path), reason },
            FileError::NotAFile { path } => FileError::NotAFile { path: known(path) },
            other => other,
        })
    }
}

impl Sink for RunWriter {
    fn take(&mut self, piece: Piece) -> Result<(), FileError> {
        let written = self.write(piece);
        self.about(written)
    }
}

impl Drop for RunWriter {
    fn drop(&mut self) {
        if !self.is_whole && self.held.is_none() {
            // What could not be written has been reported; that this fails too must not hide it.
            fs::remove_dir_all(&self.staging).unwrap_or_default();
        }
    }
}
