//! Films in DASH manifests (MPD, ISO/IEC 23009-1): the video tracks of the first period, with SegmentTemplate
//! or SegmentList, and segment lengths from @duration or a SegmentTimeline.

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};
use skyhop_units::{Duration, Quoted, Rate};

use super::{Film, FilmError, MOST_CHUNKS, MOST_TRACKS, Track, generated_sizes};

/// Largest relative deviation of a chunk's length from the mean, except for the last chunk.
const MOST_UNEVEN: f64 = 0.25;

/// Parse the film of a manifest. `size_of` returns the size of one of the film's files by its address in the
/// manifest. If it returns no size at all, sizes are bitrate x length.
///
/// # Errors
/// The text is not a manifest, it lacks data that a film needs, or the sizes of only some of the
/// files are known.
pub fn film_of_mpd(
    text: &str,
    origin: &str,
    size_of: &dyn Fn(&str) -> Option<u64>,
) -> Result<Film, FilmError> {
    let manifest = read(text).map_err(|(line, what)| FilmError::Syntax {
        origin: origin.to_owned(),
        line: Some(line),
        what,
    })?;
    manifest
        .film(origin, size_of)
        .map_err(|what| FilmError::no_film(origin, what))
        .and_then(|film| film)
}

/// Content of a manifest, reduced to the data that a film needs.
#[derive(Debug, Default)]
struct Manifest {
    length_s: Option<f64>,
    representations: Vec<Representation>,
}

/// Representation, with the values that it inherits from its AdaptationSet.
#[derive(Debug, Clone, Default)]
struct Representation {
    id: String,
    bandwidth: u64,
    height: Option<u64>,
    segments: Segments,
}

/// Segment information: SegmentTemplate, SegmentList, SegmentTimeline.
#[derive(Debug, Clone, Default)]
struct Segments {
    media: Option<String>,
    timescale: u64,
    duration: Option<u64>,
    start_number: u64,
    /// Segment lengths of a SegmentTimeline.
    durations: Vec<u64>,
    start_time: u64,
    /// Addresses of a SegmentList.
    urls: Vec<String>,
}

/// Parser state: position in the manifest.
#[derive(Debug, Default)]
struct ParserState {
    periods: u32,
    in_period: bool,
    /// Segment information of the AdaptationSet, inherited by its Representations.
    segments: Segments,
    is_video: bool,
    representation: Option<(Representation, bool)>,
}

fn read(text: &str) -> Result<Manifest, (usize, String)> {
    let mut reader = Reader::from_str(text);
    let (mut manifest, mut state) = (Manifest::default(), ParserState::default());
    let mut is_manifest = false;
    loop {
        let event = reader.read_event();
        let at = usize::try_from(reader.buffer_position()).unwrap_or(usize::MAX);
        let line = skyhop_model::line_at(text, at);
        let wrong = |what: String| (line, what);
        match event.map_err(|error| {
            wrong(format!("is not XML: {}", skyhop_model::one_line(&error.to_string())))
        })? {
            Event::Start(tag) => {
                is_manifest |= tag.local_name().as_ref() == b"MPD";
                state.open(&tag, &mut manifest).map_err(wrong)?;
            }
            Event::Empty(tag) => {
                is_manifest |= tag.local_name().as_ref() == b"MPD";
                state.open(&tag, &mut manifest).map_err(wrong)?;
                state.close(tag.local_name().as_ref(), &mut manifest).map_err(wrong)?;
            }
            Event::End(tag) => {
                state.close(tag.local_name().as_ref(), &mut manifest).map_err(wrong)?
            }
            Event::Eof if is_manifest => return Ok(manifest),
            Event::Eof => {
                return Err(wrong("is not a DASH manifest: it has no MPD element".to_owned()));
            }
            _ => {}
        }
    }
}

impl ParserState {
    fn open(&mut self, tag: &BytesStart<'_>, manifest: &mut Manifest) -> Result<(), String> {
        match tag.local_name().as_ref() {
            b"MPD" => manifest.length_s = length(tag, "mediaPresentationDuration")?,
            b"Period" => {
                self.periods += 1;
                self.in_period = self.periods == 1;
                if self.in_period {
                    manifest.length_s = length(tag, "duration")?.or(manifest.length_s);
                }
            }
            b"AdaptationSet" => {
                self.segments = Segments { timescale: 1, start_number: 1, ..Segments::default() };
                self.is_video = is_video(tag)?;
            }
            b"Representation" => {
                let representation = Representation {
                    id: attribute(tag, "id")?.unwrap_or_default(),
                    bandwidth: number(tag, "bandwidth")?.unwrap_or(0),
                    height: number(tag, "height")?,
                    segments: self.segments.clone(),
                };
                let is_video = self.is_video || is_video(tag)?;
                self.representation = Some((representation, is_video));
            }
            b"SegmentTemplate" | b"SegmentList" => self.segments_mut().read(tag)?,
            b"S" => self.segments_mut().add(tag)?,
            b"SegmentURL" => {
                let url = attribute(tag, "media")?.unwrap_or_default();
                let segments = self.segments_mut();
                if segments.urls.len() >= MOST_CHUNKS {
                    return Err(too_many());
                }
                segments.urls.push(url);
            }
            _ => {}
        }
        Ok(())
    }

    fn close(&mut self, name: &[u8], manifest: &mut Manifest) -> Result<(), String> {
        match name {
            b"Period" => self.in_period = false,
            b"Representation" => {
                let Some((representation, is_video)) = self.representation.take() else {
                    return Ok(());
                };
                if is_video && self.in_period {
                    manifest.representations.push(representation);
                }
                if manifest.representations.len() > MOST_TRACKS {
                    return Err(format!(
                        "has over {MOST_TRACKS} video tracks; expected at most so many"
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn segments_mut(&mut self) -> &mut Segments {
        self.representation.as_mut().map_or(&mut self.segments, |(of_one, _)| &mut of_one.segments)
    }
}

fn too_many() -> String {
    format!("has over {MOST_CHUNKS} segments; expected at most so many")
}

impl Segments {
    fn read(&mut self, tag: &BytesStart<'_>) -> Result<(), String> {
        if let Some(media) = attribute(tag, "media")? {
            self.media = Some(media);
        }
        self.timescale = number(tag, "timescale")?.unwrap_or(self.timescale).max(1);
        self.duration = number(tag, "duration")?.or(self.duration);
        self.start_number = number(tag, "startNumber")?.unwrap_or(self.start_number);
        Ok(())
    }

    /// Add an S element of a SegmentTimeline: a number of segments of one length.
    fn add(&mut self, tag: &BytesStart<'_>) -> Result<(), String> {
        let Some(duration) = number(tag, "d")? else { return Err("an S has no d".to_owned()) };
        let more = number(tag, "r")?.unwrap_or(0);
        if self.durations.is_empty() {
            self.start_time = number(tag, "t")?.unwrap_or(0);
        }
        let count = usize::try_from(more).unwrap_or(usize::MAX).saturating_add(1);
        if count.saturating_add(self.durations.len()) > MOST_CHUNKS {
            return Err(too_many());
        }
        self.durations.extend(std::iter::repeat_n(duration, count));
        Ok(())
    }

    /// Return the number of segments, and the length of each in seconds.
    fn lengths(&self, length_s: Option<f64>) -> Result<(usize, f64), String> {
        let scale = self.timescale.max(1) as f64;
        if let [first, rest @ ..] = &self.durations[..] {
            let even = &self.durations[..rest.len().max(1)];
            let mean = even.iter().map(|d| *d as f64).sum::<f64>() / even.len() as f64;
            if let Some(odd) = even.iter().find(|d| (**d as f64 - mean).abs() > MOST_UNEVEN * mean)
            {
                let (first, odd) = (*first as f64 / scale, *odd as f64 / scale);
                return Err(format!(
                    "has segments of {first} s and of {odd} s; expected one length"
                ));
            }
            return Ok((self.durations.len(), mean / scale));
        }
        let Some(duration) = self.duration.filter(|duration| *duration > 0) else {
            return Err(
                "has no length of segments; expected @duration or a SegmentTimeline".to_owned()
            );
        };
        let chunk_s = duration as f64 / scale;
        if !self.urls.is_empty() {
            return Ok((self.urls.len(), chunk_s));
        }
        let Some(length_s) = length_s else {
            return Err("has no length of the film; expected mediaPresentationDuration".to_owned());
        };
        // A remainder within rounding errors does not count as another chunk.
        let chunks = (length_s / chunk_s - 1e-3).ceil();
        if chunks > MOST_CHUNKS as f64 { Err(too_many()) } else { Ok((chunks as usize, chunk_s)) }
    }

    /// Address of a segment, counted from 0; `None` if the template cannot be expanded.
    fn address(&self, of: &Representation, index: usize) -> Option<String> {
        if let Some(url) = self.urls.get(index) {
            return Some(url.clone());
        }
        let number = self.start_number.saturating_add(index as u64);
        let step = self.duration.unwrap_or(0);
        let time = match self.durations.get(..index) {
            Some(before) => before.iter().fold(self.start_time, |sum, d| sum.saturating_add(*d)),
            None => step.saturating_mul(index as u64),
        };
        let mut address = String::new();
        for (place, part) in self.media.as_ref()?.split('$').enumerate() {
            match part {
                _ if place % 2 == 0 => address.push_str(part),
                "" => address.push('$'),
                "RepresentationID" => address.push_str(&of.id),
                _ if part.starts_with("Number") => address.push_str(&padded(part, number)),
                _ if part.starts_with("Time") => address.push_str(&padded(part, time)),
                _ if part.starts_with("Bandwidth") => address.push_str(&padded(part, of.bandwidth)),
                _ => return None,
            }
        }
        Some(address)
    }
}

/// Format a number as a template such as "Number%05d" demands.
fn padded(part: &str, number: u64) -> String {
    let width = part.split_once("%0").and_then(|(_, width)| width.strip_suffix('d')?.parse().ok());
    format!("{number:0width$}", width = width.filter(|width| *width <= 20).unwrap_or(0_usize))
}

impl Manifest {
    fn film(
        mut self,
        origin: &str,
        size_of: &dyn Fn(&str) -> Option<u64>,
    ) -> Result<Result<Film, FilmError>, String> {
        self.representations.sort_by_key(|one| one.bandwidth);
        let Some(first) = self.representations.first() else {
            return Err(
                "the film has no tracks; expected at least one video Representation".to_owned()
            );
        };
        let (chunks, chunk_s) = first.segments.lengths(self.length_s)?;
        for other in &self.representations {
            let (others, other_s) = other.segments.lengths(self.length_s)?;
            if others != chunks || (other_s - chunk_s).abs() > MOST_UNEVEN * chunk_s {
                let (one, other) = (Quoted(&first.id), Quoted(&other.id));
                return Err(format!(
                    "Representation {one} has {chunks} segments of {chunk_s} s, {other} {others} of {other_s} s"
                ));
            }
        }
        let chunk = Duration::from_secs_f64(chunk_s);
        let tracks: Vec<Track> = self.representations.iter().map(Representation::track).collect();
        let sizes = match self.known_sizes(chunks, size_of)? {
            Some(sizes) => sizes,
            None => generated_sizes::constant(&tracks, chunk, chunks),
        };
        Ok(Film::new(origin, chunk, tracks, &sizes))
    }

    /// File sizes by track; `None` if no size is known.
    fn known_sizes(
        &self,
        chunks: usize,
        size_of: &dyn Fn(&str) -> Option<u64>,
    ) -> Result<Option<Vec<Vec<u64>>>, String> {
        let mut missing = None;
        let mut sizes = Vec::new();
        for track in &self.representations {
            let address = |index| track.segments.address(track, index);
            let found: Vec<Option<u64>> =
                (0..chunks).map(|index| address(index).and_then(|file| size_of(&file))).collect();
            missing = missing.or_else(|| found.iter().position(Option::is_none).and_then(address));
            sizes.push(found);
        }
        let known = sizes.iter().flatten().flatten().count();
        match missing {
            Some(_) if known == 0 => Ok(None),
            Some(file) => {
                Err(format!("{known} of the film's files are there, but not {}", Quoted(&file)))
            }
            None if known < chunks * sizes.len() => Ok(None),
            None => Ok(Some(
                sizes.into_iter().map(|sizes| sizes.into_iter().flatten().collect()).collect(),
            )),
        }
    }
}

impl Representation {
    fn track(&self) -> Track {
        let bitrate = Rate::from_bits_per_second(self.bandwidth);
        Track { bitrate, name: self.height.map(|height| format!("{height}p")) }
    }
}

fn is_video(tag: &BytesStart<'_>) -> Result<bool, String> {
    let says =
        |key| Ok::<_, String>(attribute(tag, key)?.is_some_and(|text| text.starts_with("video")));
    Ok(says("contentType")? || says("mimeType")?)
}

fn attribute(tag: &BytesStart<'_>, key: &str) -> Result<Option<String>, String> {
    let wrong = |error: &dyn std::fmt::Display| {
        format!("{key}: {}", skyhop_model::one_line(&error.to_string()))
    };
    let Some(found) = tag.try_get_attribute(key).map_err(|error| wrong(&error))? else {
        return Ok(None);
    };
    let value = std::str::from_utf8(&found.value).map_err(|error| wrong(&error))?;
    let value = quick_xml::escape::unescape(value).map_err(|error| wrong(&error))?;
    Ok(Some(value.into_owned()))
}

fn number(tag: &BytesStart<'_>, key: &str) -> Result<Option<u64>, String> {
    let Some(text) = attribute(tag, key)? else { return Ok(None) };
    let parsed = text.trim().parse();
    parsed.map(Some).map_err(|_| format!("{key} is {}; expected a whole number", Quoted(&text)))
}

/// Parse an attribute such as PT3M13.6S, in seconds.
fn length(tag: &BytesStart<'_>, key: &str) -> Result<Option<f64>, String> {
    let Some(text) = attribute(tag, key)? else { return Ok(None) };
    let seconds = seconds(text.trim());
    seconds
        .map(Some)
        .ok_or_else(|| format!("{key} is {}; expected a length such as PT3M13.6S", Quoted(&text)))
}

/// Parse an xs:duration of days and smaller units, in seconds.
fn seconds(text: &str) -> Option<f64> {
    let (mut total, mut in_time) = (0.0, false);
    let mut digits = String::new();
    for letter in text.strip_prefix('P')?.chars() {
        let unit = match letter {
            'T' if digits.is_empty() => {
                in_time = true;
                continue;
            }
            '0'..='9' | '.' => {
                digits.push(letter);
                continue;
            }
            'D' if !in_time => 86_400.0,
            'H' if in_time => 3_600.0,
            'M' if in_time => 60.0,
            'S' if in_time => 1.0,
            _ => return None,
        };
        total += digits.parse::<f64>().ok()? * unit;
        digits.clear();
    }
    digits.is_empty().then_some(total).filter(|total| total.is_finite())
}
