//! Columns and summaries that are specific to certain kinds of applications.

use arrow_array::{Float64Array, Int32Array, Int64Array, StringArray};
use serde::{Deserialize, Serialize};
use skyhop_app::{CallWindow, Dash, Detail, Side};
use skyhop_files::Column;
use skyhop_model::{AppTable, Direction, End};
use skyhop_video::ChunkRow;

use crate::AppRow;

/// Fields of a row that only one kind of application has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub enum AppDetail {
    /// No fields in addition to the common ones.
    #[default]
    None,
    /// Fields of a web page.
    Page {
        /// Number of objects in addition to the document.
        objects: i32,
    },
    /// Fields of an object of a web page.
    Object {
        /// Number (`seq`) of the page that the object belongs to.
        page: i64,
    },
    /// Fields of a call's window.
    Call(CallColumns),
    /// Fields of a film's chunk.
    Chunk(ChunkRow),
}

/// Measurements of one direction of a call over a window of time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct CallColumns {
    /// Direction of the path over which the media were sent.
    pub direction: Direction,
    /// Audio frames due at the sender.
    pub audio_frames: i64,
    /// Number of these frames that were complete only after their playout time.
    pub audio_late: i64,
    /// Number of these frames that never were complete.
    pub audio_lost: i64,
    /// Video frames due at the sender.
    pub video_frames: i64,
    /// Number of these frames that were complete only after their playout time.
    pub video_late: i64,
    /// Number of these frames that never were complete.
    pub video_lost: i64,
    /// Mean one-way delay of the audio packets; `None` if no audio packet arrived.
    pub delay_ns: Option<i64>,
    /// Interarrival jitter of the audio packets at the window's end (RFC 3550 6.4.1).
    pub jitter_ns: i64,
    /// Mean opinion score of the E-model (ITU-T G.107), 1 to 4.5.
    pub mos: f64,
}

impl AppDetail {
    /// Convert the detail of a flow whose client is at this end.
    pub(crate) fn new(client: End, detail: &Detail) -> Self {
        match *detail {
            Detail::None => Self::None,
            Detail::Page { objects } => Self::Page { objects: objects as i32 },
            Detail::Object { page } => Self::Object { page: page as i64 },
            Detail::Call(window) => Self::Call(CallColumns::new(client, &window)),
            Detail::Chunk(row) => Self::Chunk(row),
        }
    }

    fn call(&self) -> Option<&CallColumns> {
        if let Self::Call(call) = self { Some(call) } else { None }
    }

    fn chunk(&self) -> Option<&ChunkRow> {
        if let Self::Chunk(row) = self { Some(row) } else { None }
    }
}

impl CallColumns {
    fn new(client: End, window: &CallWindow) -> Self {
        let CallWindow { sender, audio, video, delay, jitter, mos } = *window;
        let is_forward = (client == End::From) == (sender == Side::Client);
        Self {
            direction: if is_forward { Direction::Forward } else { Direction::Back },
            audio_frames: audio.due as i64,
            audio_late: audio.late as i64,
            audio_lost: audio.lost as i64,
            video_frames: video.due as i64,
            video_late: video.late as i64,
            video_lost: video.lost as i64,
            delay_ns: delay.map(|delay| delay.as_nanos() as i64),
            jitter_ns: jitter.as_nanos() as i64,
            mos,
        }
    }
}

/// Columns that only this table has.
pub(crate) fn detail_columns(table: AppTable, rows: &[AppRow]) -> Vec<Column> {
    match table {
        AppTable::Pages => {
            let objects = |row: &AppRow| match row.detail {
                AppDetail::Page { objects } => Some(objects),
                _ => None,
            };
            vec![Column::optional("objects", rows.iter().map(objects).collect::<Int32Array>())]
        }
        AppTable::Objects => {
            let page = |row: &AppRow| match row.detail {
                AppDetail::Object { page } => Some(page),
                _ => None,
            };
            vec![Column::optional("page", rows.iter().map(page).collect::<Int64Array>())]
        }
        AppTable::Calls => call_columns(rows),
        AppTable::Chunks => chunk_columns(rows),
        AppTable::Requests | AppTable::Bursts | AppTable::Messages => Vec::new(),
    }
}

/// Column of the table of calls: its name, and the function that reads its value.
type CallColumn = (&'static str, fn(&CallColumns) -> i64);

fn call_columns(rows: &[AppRow]) -> Vec<Column> {
    let calls = || rows.iter().map(|row| row.detail.call());
    let directions: StringArray =
        calls().map(|call| call.map(|call| call.direction.name())).collect();
    let mut columns = vec![Column::optional("direction", directions)];
    let counts: [CallColumn; 7] = [
        ("audio_frames", |call| call.audio_frames),
        ("audio_late", |call| call.audio_late),
        ("audio_lost", |call| call.audio_lost),
        ("video_frames", |call| call.video_frames),
        ("video_late", |call| call.video_late),
        ("video_lost", |call| call.video_lost),
        ("jitter_ns", |call| call.jitter_ns),
    ];
    columns.extend(counts.into_iter().map(|(name, value)| {
        Column::optional(name, calls().map(|call| call.map(value)).collect::<Int64Array>())
    }));
    let delays: Int64Array = calls().map(|call| call?.delay_ns).collect();
    columns.push(Column::optional("delay_ns", delays));
    columns.push(Column::optional(
        "mos",
        calls().map(|call| Some(call?.mos)).collect::<Float64Array>(),
    ));
    columns
}

/// Summary of a call, over both directions unless stated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct CallSummary {
    /// Mean of the mean opinion scores of all windows.
    pub mos_mean: f64,
    /// Lowest mean opinion score of a window.
    pub mos_least: f64,
    /// Mean of the scores of the direction `from` to `to`.
    pub mos_forward: f64,
    /// Mean of the scores of the direction `to` to `from`.
    pub mos_back: f64,
    /// Mean of the audio jitter of all windows.
    pub jitter_mean_us: u64,
    /// Share of the audio frames that arrived too late.
    pub audio_late: f64,
    /// Share of the audio frames that were lost.
    pub audio_lost: f64,
    /// Share of the video frames that arrived too late; 0 if there are none.
    pub video_late: f64,
    /// Share of the video frames that were lost; 0 if there are none.
    pub video_lost: f64,
}

/// Running totals of a call.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CallAccount {
    /// Number of windows and sum of their mean opinion scores, for each direction.
    mos: [(u64, f64); 2],
    least: Option<f64>,
    jitter_ns: i64,
    /// Audio frames: due, late and lost ones.
    audio: [i64; 3],
    video: [i64; 3],
}

impl CallAccount {
    pub(crate) fn add(&mut self, window: &CallColumns) {
        let (windows, sum) = &mut self.mos[window.direction as usize];
        (*windows, *sum) = (*windows + 1, *sum + window.mos);
        self.least = Some(self.least.map_or(window.mos, |least| least.min(window.mos)));
        self.jitter_ns += window.jitter_ns;
        let more =
            |to: &mut [i64; 3], of: [i64; 3]| to.iter_mut().zip(of).for_each(|(a, b)| *a += b);
        more(&mut self.audio, [window.audio_frames, window.audio_late, window.audio_lost]);
        more(&mut self.video, [window.video_frames, window.video_late, window.video_lost]);
    }

    /// Summarize the windows so far; `None` if there are none.
    pub(crate) fn summary(&self) -> Option<CallSummary> {
        let mos_least = self.least?;
        let [forward, back] = self.mos;
        let mean =
            |(windows, sum): (u64, f64)| if windows == 0 { sum } else { sum / windows as f64 };
        let share = |[all, part]: [i64; 2]| if all == 0 { 0.0 } else { part as f64 / all as f64 };
        Some(CallSummary {
            mos_mean: mean((forward.0 + back.0, forward.1 + back.1)),
            mos_least,
            mos_forward: mean(forward),
            mos_back: mean(back),
            jitter_mean_us: self.jitter_ns.unsigned_abs() / (forward.0 + back.0).max(1) / 1000,
            audio_late: share([self.audio[0], self.audio[1]]),
            audio_lost: share([self.audio[0], self.audio[2]]),
            video_late: share([self.video[0], self.video[1]]),
            video_lost: share([self.video[0], self.video[2]]),
        })
    }
}

/// Column of the table of chunks: its name, and the function that reads its value.
type ChunkColumn = (&'static str, fn(&ChunkRow) -> Option<u64>);

fn chunk_columns(rows: &[AppRow]) -> Vec<Column> {
    let chunks = || rows.iter().map(|row| row.detail.chunk());
    let track: Int32Array = chunks().map(|chunk| chunk.map(|chunk| chunk.track as i32)).collect();
    let number: Int32Array = chunks().map(|chunk| chunk.map(|chunk| chunk.chunk as i32)).collect();
    let mut columns = vec![Column::optional("chunk", number), Column::optional("track", track)];
    let others: [ChunkColumn; 9] = [
        ("bitrate_bps", |chunk| Some(chunk.bitrate_bps)),
        ("size_bytes", |chunk| Some(chunk.size_bytes)),
        ("asked_ns", |chunk| Some(chunk.asked_ns)),
        ("arrived_ns", |chunk| Some(chunk.arrived_ns)),
        ("stall_ns", |chunk| Some(chunk.stall_ns)),
        ("buffer_ns", |chunk| Some(chunk.buffer_ns)),
        ("waited_ns", |chunk| Some(chunk.waited_ns)),
        ("abandoned_bytes", |chunk| Some(chunk.abandoned_bytes)),
        ("predicted_bps", |chunk| chunk.predicted_bps),
    ];
    columns.extend(others.into_iter().map(|(name, value)| {
        let of = |chunk: Option<&ChunkRow>| chunk.and_then(value).map(|number| number as i64);
        Column::optional(name, chunks().map(of).collect::<Int64Array>())
    }));
    columns
}

/// Summary of a film's session as its viewer experienced it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct VideoSummary {
    /// Start-up delay: from the session's start until playback.
    pub startup_ns: u64,
    /// Total stall after the start-up.
    pub stall_ns: u64,
    /// Number of stalls after the start-up.
    pub stalls: u64,
    /// Number of chunks whose track differs from that of the chunk before.
    pub switches: u64,
    /// Mean of the chunks' bitrates.
    pub mean_bitrate_bps: u64,
    /// Bytes received in transfers of chunks that the player abandoned.
    pub abandoned_bytes: u64,
    /// Mean QoE per chunk, computed by the QoE function that the controller maximizes.
    pub qoe: Option<f64>,
}

impl VideoSummary {
    pub(crate) fn of(dash: &Dash, rows: &[ChunkRow]) -> Self {
        let (summary, qoe) = dash.summary(rows);
        Self {
            startup_ns: summary.startup_ns,
            stall_ns: summary.stall_ns,
            stalls: summary.stalls,
            switches: summary.switches,
            mean_bitrate_bps: summary.mean_bitrate_bps.round() as u64,
            abandoned_bytes: summary.abandoned_bytes,
            qoe: qoe.filter(|_| !rows.is_empty()),
        }
    }
}
