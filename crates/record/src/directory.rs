//! Run directories: all files of one run, either complete or absent.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use skyhop_files::{FileError, Staging, path_to_parquet, remove_stale, write_error, write_staged};
use skyhop_model::AppTable;
use skyhop_path::PathTrace;

use crate::replacing::{refuse_other_than_run_files, replace_earlier, resume, run_files};
use crate::segments::{Segments, join};
use crate::tables::{
    app_columns, event_columns, flow_columns, link_columns, probe_columns, route_columns,
};
use crate::{AppRow, EventRow, FlowSample, LinkSample, Piece, ProbeRow, RouteRow, Sink};

/// Prefix of the hidden directories that hold a run's files before it ends.
const STAGING: &str = ".run.partial-";

/// Directory for a run's results. It is reserved before the run begins, so that an unusable path is
/// reported early.
#[derive(Debug)]
pub struct RunDirectory {
    path: PathBuf,
    created: Vec<PathBuf>,
    /// Whether the caller moves the directory into place once the run is complete.
    caller_moves: bool,
}

impl RunDirectory {
    /// Check that `path` is a writable directory, and create it if it is missing.
    ///
    /// # Errors
    /// [`FileError::NotEmpty`] unless `force`, [`FileError::NotADirectory`], [`FileError::NotAFile`] or
    /// [`FileError::NotARuns`] if an entry with the name of one of a run's files is not a run's file, or
    /// [`FileError::Write`] if the directory cannot be created.
    pub fn reserve(path: &Path, force: bool) -> Result<Self, FileError> {
        if path.exists() && !path.is_dir() {
            return Err(FileError::NotADirectory { path: path.to_owned() });
        }
        let created = missing_directories(path);
        if let Err(error) = fs::create_dir_all(path) {
            let made = created.into_iter().filter(|directory| directory.exists()).collect();
            Self { path: path.to_owned(), created: made, caller_moves: false }.abandon()?;
            return Err(write_error(path, error));
        }
        remove_stale(path, STAGING, |left| resume(left, path).map_err(io::Error::other));
        let mut entries = fs::read_dir(path)
            .map_err(|source| FileError::Read { path: path.to_owned(), source })?;
        if entries.next().is_some() && !force {
            return Err(FileError::NotEmpty { path: path.to_owned() });
        }
        refuse_other_than_run_files(path)?;
        Ok(Self { path: path.to_owned(), created, caller_moves: false })
    }

    /// Use an empty directory of the caller, who moves it into place when the run in it is complete. Files
    /// are written directly into the directory, and an abandoned run removes it.
    pub fn moved_by_caller(path: &Path) -> Self {
        Self { path: path.to_owned(), created: Vec::new(), caller_moves: true }
    }

    /// Start writing a run over `trace`. Until the run has ended, its tables are segments in a hidden
    /// subdirectory; an earlier run's files are replaced only when all new files are complete. `path_file` is
    /// a path file that contains `trace`, if there is one that no process changes.
    ///
    /// # Errors
    /// [`FileError::Write`] with the system's reason, such as a full disk.
    pub fn writer(
        &self,
        trace: &PathTrace,
        path_file: Option<&Path>,
    ) -> Result<RunWriter, FileError> {
        let staging_guard = match self.caller_moves {
            true => fs::create_dir_all(&self.path).map(|()| None),
            false => Staging::with_prefix(&self.path, STAGING).map(Some),
        };
        let staging_guard = staging_guard.map_err(|e| write_error(&self.path, e))?;
        let writer = RunWriter::new(staging_guard, self.path.clone());
        writer.with_user_path(put_path(trace, path_file, &writer.staging.join("path.parquet")))?;
        Ok(writer)
    }

    /// Copy the files of a complete run from the directory `complete`, in place of an earlier run's files.
    ///
    /// # Errors
    /// [`FileError::Write`] with the system's reason, such as a full disk.
    pub fn copy_run(&self, complete: &Path) -> Result<(), FileError> {
        let staging = Staging::with_prefix(&self.path, STAGING)
            .map_err(|error| write_error(&self.path, error))?;
        for name in run_files() {
            match fs::copy(complete.join(&name), staging.path().join(&name)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(write_error(&self.path.join(name), error)),
            }
        }
        replace_earlier(staging.path(), &self.path)
    }

    /// Remove the directories that `reserve` created, for a run without results.
    ///
    /// # Errors
    /// [`FileError::Write`] if one cannot be removed.
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

/// List the directories on the way to `path` that do not exist yet, outermost first.
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

/// Write a path file at `place`; if possible as a hard link to `file`, so that runs over one path
/// share one file.
fn put_path(trace: &PathTrace, file: Option<&Path>, place: &Path) -> Result<(), FileError> {
    // Hard links do not exist on some file systems, nor between two file systems.
    if file.is_some_and(|file| fs::hard_link(file, place).is_ok()) {
        return Ok(());
    }
    write_staged(place, &path_to_parquet(trace)?)
}

/// Writer of a run into its directory. If it is dropped before the last piece, it removes its files.
#[derive(Debug)]
pub struct RunWriter {
    /// Directory of the files until they are complete; the destination itself if the caller moves it.
    staging: PathBuf,
    /// Guard that locks the staging directory and removes it; `None` if the caller moves the directory.
    staging_guard: Option<Staging>,
    destination: PathBuf,
    is_whole: bool,
    links: Vec<String>,
    sites: Vec<String>,
    flows: Segments<FlowSample>,
    link: Segments<LinkSample>,
    events: Segments<EventRow>,
    apps: BTreeMap<AppTable, Segments<AppRow>>,
    /// Segments by probe: each probe's rows are contiguous in the table.
    probes: BTreeMap<i32, Segments<ProbeRow>>,
    routes: Segments<RouteRow>,
}

impl RunWriter {
    fn new(staging_guard: Option<Staging>, destination: PathBuf) -> Self {
        let staging = staging_guard.as_ref().map_or(&*destination, Staging::path).to_owned();
        Self {
            links: Vec::new(),
            sites: Vec::new(),
            flows: Segments::new(&staging, "flows", 0),
            link: Segments::new(&staging, "link", 0),
            events: Segments::new(&staging, "events", 0),
            apps: BTreeMap::new(),
            probes: BTreeMap::new(),
            routes: Segments::new(&staging, "routes", 0),
            staging,
            staging_guard,
            destination,
            is_whole: false,
        }
    }

    fn write_piece(&mut self, piece: Piece) -> Result<(), FileError> {
        match piece {
            Piece::Begin(begin) => (self.links, self.sites) = (begin.links, begin.sites),
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
            Piece::Routes(rows) => {
                let sites = &self.sites;
                self.routes.add(rows, |row| row.t_ns, |rows| route_columns(rows, sites))?;
            }
            Piece::Packets(_) => {}
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
        write_staged(&path, text.as_bytes())
    }

    /// Join the tables' segments, and move all files to their place.
    fn finish(&mut self) -> Result<(), FileError> {
        let place = |name: &str| self.staging.join(format!("{name}.parquet"));
        let staging = self.staging.clone();
        fn take_segments<R>(from: &mut Segments<R>, staging: &Path) -> Segments<R> {
            std::mem::replace(from, Segments::new(staging, "", 0))
        }
        let links = &self.links;
        join(&take_segments(&mut self.flows, &staging).finish(flow_columns)?, &place("flows"))?;
        let link =
            take_segments(&mut self.link, &staging).finish(|rows| link_columns(rows, links))?;
        join(&link, &place("link"))?;
        let events =
            take_segments(&mut self.events, &staging).finish(|rows| event_columns(rows, links))?;
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
        if !self.sites.is_empty() {
            let sites = &self.sites;
            let routes = take_segments(&mut self.routes, &staging);
            join(&routes.finish(|rows| route_columns(rows, sites))?, &place("routes"))?;
        }
        if self.staging_guard.is_some() {
            replace_earlier(&self.staging, &self.destination)?;
        }
        self.is_whole = true;
        Ok(())
    }

    /// Replace the staging directory in an error by the destination, which the user knows.
    fn with_user_path<T>(&self, result: Result<T, FileError>) -> Result<T, FileError> {
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
    fn write(&mut self, piece: Piece) -> Result<(), FileError> {
        let written = self.write_piece(piece);
        self.with_user_path(written)
    }
}

impl Drop for RunWriter {
    fn drop(&mut self) {
        if !self.is_whole && self.staging_guard.is_none() {
            // The failed write has been reported; a failure here must not hide it.
            fs::remove_dir_all(&self.staging).unwrap_or_default();
        }
    }
}
