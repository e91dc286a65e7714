//! Python classes for films, controllers, and sessions of adaptive video over a rate trace.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use serde::Deserialize;
use skyhop_model::PlayerCompat;
use skyhop_scenario::films::film;
use skyhop_units::Rate;
use skyhop_video::chunk::score;
use skyhop_video::controllers::{ArrivedChunk, CONTROLLERS, Controller, ControllerChoice, View};
use skyhop_video::forecast::{Errors, PredictionHistory, Predictions, RateForecast};
use skyhop_video::over_rate::{Environment, ForecastSource, PlayedSession, Setting, play};
use skyhop_video::qoe::{QOES, Qoe};
use skyhop_video::session::PlayerSettings;
use skyhop_video::{ChunkRow, Film, RateTrace, RateTraceError, Summary, optimum};

use crate::catalogue::{BUILT_IN, Entry, QdiscEntry, built_in, keys_of};
use crate::errors::{Fallible, input_error};

/// Film of adaptive video: its tracks, and the sizes of their chunks.
#[pyclass(name = "Film", frozen)]
pub(crate) struct PyFilm(Arc<Film>);

#[pymethods]
impl PyFilm {
    /// Read a film by name, TOML file, manifest or directory; `top` scales it to another top bitrate.
    #[staticmethod]
    #[pyo3(signature = (name, top=None, base=""))]
    fn read(name: &str, top: Option<&str>, base: &str) -> Fallible<Self> {
        let film = film(name, Path::new(base), name, "film")?;
        let Some(top) = top else { return Ok(Self(Arc::new(film))) };
        let top: Rate =
            top.parse().map_err(|error| input_error(&format!("the film's top: {error}")))?;
        Ok(Self(Arc::new(film.with_top(top)?)))
    }

    /// Parse a film from TOML text; `origin` names the text in errors.
    #[staticmethod]
    fn of_toml(text: &str, origin: &str) -> Fallible<Self> {
        Ok(Self(Arc::new(Film::of_toml(text, origin)?)))
    }

    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    #[getter]
    fn description(&self) -> &str {
        &self.0.description
    }

    #[getter]
    fn source(&self) -> &str {
        &self.0.source
    }

    #[getter]
    fn chunk_s(&self) -> f64 {
        self.0.chunk.as_secs_f64()
    }

    #[getter]
    fn chunks(&self) -> usize {
        self.0.chunks()
    }

    #[getter]
    fn bitrates_bps(&self) -> Vec<u64> {
        (0..self.0.tracks.len()).map(|track| self.0.bitrate_bps(track)).collect()
    }

    #[getter]
    fn track_names(&self) -> Vec<Option<String>> {
        self.0.tracks.iter().map(|track| track.name.clone()).collect()
    }

    /// Sizes of a track's chunks in bytes.
    fn sizes_bytes(&self, track: usize) -> Fallible<Vec<u64>> {
        if track > self.0.top() {
            return Err(input_error(&format!(
                "the film has no track {track}; expected 0 to {}",
                self.0.top()
            )));
        }
        Ok((0..self.0.chunks()).map(|chunk| self.0.size_bytes(chunk, track)).collect())
    }

    /// Quality of each track under a QoE.
    fn qualities(&self, qoe: &str) -> Fallible<Vec<f64>> {
        Ok(Qoe::new(qoe, &self.0)?.qualities().to_vec())
    }
}

/// Rate over time as a step function.
#[pyclass(name = "RateTrace", frozen)]
pub(crate) struct PyRateTrace(Arc<RateTrace>);

#[pymethods]
impl PyRateTrace {
    #[new]
    fn new(origin: &str, starts_s: Vec<f64>, rates_bps: Vec<f64>, end_s: f64) -> Fallible<Self> {
        Ok(Self(Arc::new(RateTrace::new(origin, &starts_s, &rates_bps, end_s)?)))
    }

    #[getter]
    fn length_s(&self) -> f64 {
        self.0.length_s()
    }

    /// Mean rate between two times in bit/s.
    fn mean_bps(&self, from_s: f64, until_s: f64) -> f64 {
        self.0.mean_bps(from_s, until_s)
    }
}

/// Options of a session, as JSON.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Options {
    playing: PlayerSettings,
    environment: Environment,
    without_first: bool,
    compat: PlayerCompat,
    /// Errors of the oracle that provides the future rate to controllers; `None`: no errors.
    oracle: Option<Errors>,
}

impl Options {
    fn read(text: &str) -> Fallible<Self> {
        let mut options: Self = serde_json::from_str(text).map_err(|error| {
            input_error(&format!("the session: {}", skyhop_model::one_line(&error.to_string())))
        })?;
        let errors = options.oracle.unwrap_or_default();
        let checked = options.playing.check().and_then(|()| options.environment.check());
        let checked = checked.and_then(|()| errors.check());
        checked.map_err(|(key, what)| input_error(&format!("the session's {key} {what}")))?;
        if options.compat == PlayerCompat::Pensieve {
            options.playing.wait_step = PlayerSettings::wait_step_of(options.compat);
            options.environment.stands_still = true;
            options.without_first = true;
        }
        Ok(options)
    }
}

/// Predictions: times at which they were made (s), length of a step (s), and rates of the following steps (bit/s).
pub(crate) type Predicted = (Vec<f64>, f64, Vec<Vec<f64>>);

/// Convert predictions for players; each rate is multiplied by `share`, the share available to the film.
pub(crate) fn prediction_history(
    (at_s, every_s, rows): Predicted,
    share: f64,
) -> Fallible<PredictionHistory> {
    if at_s.len() != rows.len() {
        return Err(input_error(&format!(
            "{} instants of predictions, but {} rows",
            at_s.len(),
            rows.len()
        )));
    }
    let predictions = at_s.into_iter().zip(rows).map(|(at_s, bps)| {
        Predictions::new(at_s, every_s, bps.into_iter().map(|bps| bps * share).collect())
    });
    let predictions: Result<Vec<Predictions>, String> = predictions.collect();
    predictions.and_then(PredictionHistory::new).map_err(|what| input_error(&what))
}

fn forecast_source(options: &Options, predicted: Option<Predicted>) -> Fallible<ForecastSource> {
    match predicted {
        Some(predicted) => Ok(ForecastSource::Predicted(prediction_history(predicted, 1.0)?)),
        None => Ok(options.oracle.map_or(ForecastSource::Truth, ForecastSource::Erring)),
    }
}

/// Parse a controller, given as a name or as a table in JSON.
fn controller(text: &str) -> Fallible<ControllerChoice> {
    if !text.trim_start().starts_with('{') {
        return Ok(ControllerChoice::named(text)?);
    }
    serde_json::from_str(text).map_err(|error| {
        input_error(&format!("the controller: {}", skyhop_model::one_line(&error.to_string())))
    })
}

/// Play sessions over a rate trace, one per offset and seed, on `threads` threads (default: all cores).
#[pyfunction]
#[pyo3(signature = (film, controller, qoe, trace, offsets_s, seeds, options="{}", predicted=None, threads=None))]
#[expect(clippy::too_many_arguments, reason = "keyword arguments in Python")]
pub(crate) fn play_over_rate(
    py: Python<'_>,
    film: &PyFilm,
    controller: &str,
    qoe: &str,
    trace: &PyRateTrace,
    offsets_s: Vec<f64>,
    seeds: Vec<u64>,
    options: &str,
    predicted: Option<Predicted>,
    threads: Option<usize>,
) -> Fallible<PySessions> {
    if seeds.len() != offsets_s.len() {
        return Err(input_error(&format!(
            "{} offsets, but {} seeds",
            offsets_s.len(),
            seeds.len()
        )));
    }
    if let Some(bad) = offsets_s.iter().find(|offset_s| !(0.0..=1e7).contains(*offset_s)) {
        return Err(input_error(&format!("a session begins at {bad} s; expected 0 to 10000000 s")));
    }
    let options = Options::read(options)?;
    let setting = Setting {
        film: film.0.clone(),
        controller: self::controller(controller)?,
        qoe: Arc::new(Qoe::new(qoe, &film.0)?),
        player: options.playing,
        environment: options.environment,
        forecast: forecast_source(&options, predicted)?,
        without_first: options.without_first,
    };
    let (trace, starts) = (trace.0.clone(), offsets_s.into_iter().zip(seeds).collect::<Vec<_>>());
    let played = py.detach(|| {
        each(threads, &starts, |(offset_s, seed)| play(&setting, &trace, *offset_s, *seed))
    });
    let played: Result<Vec<PlayedSession>, RateTraceError> = played.into_iter().collect();
    Ok(PySessions { film: film.0.clone(), played: played? })
}

/// Upper bound of the mean QoE per chunk that a player could reach, for each offset into the rate trace.
#[pyfunction]
#[pyo3(signature = (film, qoe, trace, offsets_s, options="{}", resolution_s=0.1, threads=None))]
#[expect(clippy::too_many_arguments, reason = "keyword arguments in Python")]
pub(crate) fn optimum_over_rate(
    py: Python<'_>,
    film: &PyFilm,
    qoe: &str,
    trace: &PyRateTrace,
    offsets_s: Vec<f64>,
    options: &str,
    resolution_s: f64,
    threads: Option<usize>,
) -> Fallible<Vec<f64>> {
    if !(0.001..=10.0).contains(&resolution_s) {
        return Err(input_error(&format!(
            "a resolution of {resolution_s} s; expected 0.001 to 10 s"
        )));
    }
    let options = Options::read(options)?;
    let qoe = Qoe::new(qoe, &film.0)?;
    let bound = optimum::Bound {
        film: &film.0,
        qoe: &qoe,
        player: options.playing,
        environment: options.environment,
        without_first: options.without_first,
        resolution_s,
    };
    let trace = trace.0.clone();
    Ok(py.detach(|| each(threads, &offsets_s, |offset_s| bound.over(&trace, *offset_s))))
}

/// Map `work` over all items on several threads; the results are in the order of the items.
fn each<T: Sync, R: Send>(
    threads: Option<usize>,
    all: &[T],
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let threads = threads.unwrap_or(cores).clamp(1, all.len().max(1));
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(all.len())));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut own = Vec::new();
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(one) = all.get(index) else { break };
                    own.push((index, work(one)));
                }
                done.lock().unwrap_or_else(PoisonError::into_inner).extend(own);
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_unstable_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Finished sessions of a film.
#[pyclass(name = "Sessions", frozen)]
pub(crate) struct PySessions {
    film: Arc<Film>,
    played: Vec<PlayedSession>,
}

#[pymethods]
impl PySessions {
    fn __len__(&self) -> usize {
        self.played.len()
    }

    /// Rows of all chunks of all sessions, as columns of native 64-bit numbers.
    fn chunks<'py>(&self, py: Python<'py>) -> Fallible<Bound<'py, PyDict>> {
        let rows = || {
            let numbered = (0_i64..).zip(&self.played);
            numbered.flat_map(|(session, one)| one.rows.iter().map(move |row| (session, row)))
        };
        let columns = PyDict::new(py);
        columns.set_item("session", whole(py, rows().map(|(session, _)| session)))?;
        for (name, of) in CHUNK_COLUMNS {
            columns.set_item(name, whole(py, rows().map(|(_, row)| of(row) as i64)))?;
        }
        let predicted = rows().map(|(_, row)| row.predicted_bps.map_or(f64::NAN, |bps| bps as f64));
        columns.set_item("predicted_bps", real(py, predicted))?;
        Ok(columns)
    }

    /// Summaries of the sessions, as columns of native 64-bit numbers; `qoe` is the score of the session's QoE.
    fn summaries<'py>(&self, py: Python<'py>) -> Fallible<Bound<'py, PyDict>> {
        let columns = PyDict::new(py);
        for (name, of) in SUMMARY_COLUMNS {
            columns
                .set_item(name, whole(py, self.played.iter().map(|one| of(&one.summary) as i64)))?;
        }
        let bitrates = self.played.iter().map(|one| one.summary.mean_bitrate_bps);
        columns.set_item("mean_bitrate_bps", real(py, bitrates))?;
        columns.set_item("qoe", real(py, self.played.iter().map(|one| one.qoe)))?;
        Ok(columns)
    }

    /// Mean score per chunk of each session under another QoE.
    #[pyo3(signature = (qoe, without_first=false))]
    fn scores(&self, qoe: &str, without_first: bool) -> Fallible<Vec<f64>> {
        let qoe = Qoe::new(qoe, &self.film)?;
        let of = |one: &PlayedSession| score(&one.rows, &self.film, &qoe, without_first);
        Ok(self.played.iter().map(of).collect())
    }
}

/// Column of chunks: its name and the function that reads it.
type ChunkColumn = (&'static str, fn(&ChunkRow) -> u64);

const CHUNK_COLUMNS: [ChunkColumn; 10] = [
    ("chunk", |row| row.chunk.into()),
    ("track", |row| row.track.into()),
    ("bitrate_bps", |row| row.bitrate_bps),
    ("size_bytes", |row| row.size_bytes),
    ("asked_ns", |row| row.asked_ns),
    ("arrived_ns", |row| row.arrived_ns),
    ("stall_ns", |row| row.stall_ns),
    ("buffer_ns", |row| row.buffer_ns),
    ("waited_ns", |row| row.waited_ns),
    ("abandoned_bytes", |row| row.abandoned_bytes),
];

/// Column of summaries: its name and the function that reads it.
type SummaryColumn = (&'static str, fn(&Summary) -> u64);

const SUMMARY_COLUMNS: [SummaryColumn; 6] = [
    ("chunks", |summary| summary.chunks),
    ("startup_ns", |summary| summary.startup_ns),
    ("stall_ns", |summary| summary.stall_ns),
    ("stalls", |summary| summary.stalls),
    ("switches", |summary| summary.switches),
    ("abandoned_bytes", |summary| summary.abandoned_bytes),
];

fn whole<'py>(py: Python<'py>, values: impl Iterator<Item = i64>) -> Bound<'py, PyBytes> {
    PyBytes::new(py, &values.flat_map(i64::to_ne_bytes).collect::<Vec<u8>>())
}

fn real<'py>(py: Python<'py>, values: impl Iterator<Item = f64>) -> Bound<'py, PyBytes> {
    PyBytes::new(py, &values.flat_map(f64::to_ne_bytes).collect::<Vec<u8>>())
}

/// Compute the mean score per chunk of a session under a QoE, from the track and the stall time in
/// ns of each chunk.
#[pyfunction]
#[pyo3(signature = (film, qoe, tracks, stalls_ns, without_first=false))]
pub(crate) fn score_chunks(
    film: &PyFilm,
    qoe: &str,
    tracks: Vec<u32>,
    stalls_ns: Vec<u64>,
    without_first: bool,
) -> Fallible<f64> {
    let film = &film.0;
    if tracks.len() != stalls_ns.len() || tracks.len() > film.chunks() {
        let (tracks, stalls, chunks) = (tracks.len(), stalls_ns.len(), film.chunks());
        return Err(input_error(&format!(
            "{tracks} tracks and {stalls} stalls of a film of {chunks} chunks"
        )));
    }
    if let Some(track) = tracks.iter().find(|track| **track as usize > film.top()) {
        return Err(input_error(&format!(
            "the film has no track {track}; expected 0 to {}",
            film.top()
        )));
    }
    let rows: Vec<ChunkRow> = (0..)
        .zip(tracks.iter().zip(&stalls_ns))
        .map(|(chunk, (track, stall_ns))| ChunkRow::of(film, chunk, *track, *stall_ns))
        .collect();
    Ok(score(&rows, film, &Qoe::new(qoe, film)?, without_first))
}

/// Controller for an external player, such as one in a browser.
#[pyclass(name = "Player")]
pub(crate) struct PyPlayer {
    film: Arc<Film>,
    qoe: Qoe,
    controller: Mutex<Box<dyn Controller>>,
    cap_s: f64,
    forecast: Option<Predictions>,
}

#[pymethods]
impl PyPlayer {
    #[new]
    #[pyo3(signature = (film, controller, qoe, seed=1, buffer_cap_s=60.0))]
    fn new(
        film: &PyFilm,
        controller: &str,
        qoe: &str,
        seed: u64,
        buffer_cap_s: f64,
    ) -> Fallible<Self> {
        let qoe = Qoe::new(qoe, &film.0)?;
        let controller = Mutex::new(self::controller(controller)?.build(&film.0, &qoe, seed));
        Ok(Self { film: film.0.clone(), qoe, controller, cap_s: buffer_cap_s, forecast: None })
    }

    /// Choose the next chunk's track. Return the track, the controller's rate estimate in bit/s, and the time in s that the
    /// player shall wait before the request.
    #[pyo3(signature = (now_s, buffer_s, chunk, last_track=None))]
    fn next(
        &self,
        now_s: f64,
        buffer_s: f64,
        chunk: usize,
        last_track: Option<usize>,
    ) -> Fallible<(usize, Option<f64>, f64)> {
        if chunk >= self.film.chunks() {
            let chunks = self.film.chunks();
            return Err(input_error(&format!("the film has {chunks} chunks, not a chunk {chunk}")));
        }
        if let Some(track) = last_track.filter(|track| *track > self.film.top()) {
            return Err(input_error(&format!(
                "the film has no track {track}; expected 0 to {}",
                self.film.top()
            )));
        }
        if !(now_s.is_finite() && (0.0..=1e9).contains(&buffer_s)) {
            return Err(input_error(&format!(
                "a buffer of {buffer_s} s at {now_s} s; expected numbers from 0"
            )));
        }
        let view = View {
            film: &self.film,
            qoe: &self.qoe,
            chunk,
            last_track,
            buffer_s,
            now_s,
            cap_s: self.cap_s,
            forecast: self.forecast.as_ref().map(|forecast| forecast as &dyn RateForecast),
        };
        let choice = self.controller.lock().unwrap_or_else(PoisonError::into_inner).choose(&view);
        Ok((choice.track, choice.estimate_bps, choice.wait_s))
    }

    /// Report that a chunk has arrived `took_s` after its request. Before the request, the player waited `waited_s`
    /// for room in its buffer.
    #[pyo3(signature = (chunk, track, size_bytes, took_s, waited_s=0.0))]
    fn arrived(
        &self,
        chunk: usize,
        track: usize,
        size_bytes: u64,
        took_s: f64,
        waited_s: f64,
    ) -> Fallible<()> {
        if size_bytes == 0 || !(took_s > 0.0 && took_s.is_finite() && waited_s >= 0.0) {
            return Err(input_error(&format!(
                "{size_bytes} B that took {took_s} s; expected more than 0 of both"
            )));
        }
        let arrived = ArrivedChunk { chunk, track, bytes: size_bytes as f64, took_s, waited_s };
        self.controller.lock().unwrap_or_else(PoisonError::into_inner).on_chunk(&arrived);
        Ok(())
    }

    /// Set a model's prediction, made at `now_s`: rates in bit/s of the following steps of `every_s`.
    fn predicted(&mut self, now_s: f64, every_s: f64, bps: Vec<f64>) -> Fallible<()> {
        let forecast = Predictions::new(now_s, every_s, bps).map_err(|what| input_error(&what))?;
        self.forecast = Some(forecast);
        Ok(())
    }
}

#[pyfunction]
pub(crate) fn list_films() -> Fallible<Vec<Entry>> {
    let names = skyhop_video::film::film_names().into_iter();
    names
        .map(|name| {
            let Film { name, description, source, .. } = Film::shipped(&name)?;
            Ok(Entry { name, description, source })
        })
        .collect()
}

#[pyfunction]
pub(crate) fn list_controllers() -> Fallible<Vec<QdiscEntry>> {
    let entries = CONTROLLERS.iter().map(|entry| {
        let table = (entry.default)().serialize_whole(serde_json::value::Serializer)?;
        Ok(QdiscEntry {
            name: entry.name.to_owned(),
            description: entry.summary.to_owned(),
            source: BUILT_IN.to_owned(),
            parameters: keys_of(&table),
        })
    });
    entries.collect()
}

#[pyfunction]
pub(crate) fn list_qoes() -> Vec<Entry> {
    QOES.iter().map(|entry| built_in(entry.name, entry.summary)).collect()
}
