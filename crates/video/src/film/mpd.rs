//! Films in DASH manifests (MPD, ISO/IEC 23009-1): the video tracks of all periods, with SegmentTemplate
//! or SegmentList, and segment lengths from @duration or a SegmentTimeline.
//!
//! A Period, an AdaptationSet and a Representation inherit segment information and base addresses from the element
//! around them (5.3.9.1, 5.6.4).

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};
use skyhop_units::{Duration, Quoted, Rate};

use super::{Film, FilmError, MOST_CHUNKS, MOST_TRACKS, Track, generated_sizes};

/// Largest relative deviation of a chunk's length from the mean, except for the last chunk.
const MOST_UNEVEN: f64 = 0.25;

/// Schemes of properties that mark pictures for fast forward and for seek bars (DASH-IF IOP 3.2.9, 6.2.6).
const TRICKS: [&str; 2] =
    ["http://dashif.org/guidelines/trickmode", "http://dashif.org/guidelines/thumbnail_tile"];

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
    periods: Vec<Period>,
}

/// Period with its video Representations.
#[derive(Debug, Default)]
struct Period {
    start_s: Option<f64>,
    length_s: Option<f64>,
    representations: Vec<Representation>,
}

/// Video Representation, with the values that it inherits.
#[derive(Debug, Clone, Default)]
struct Representation {
    id: String,
    bandwidth: u64,
    height: Option<u64>,
    base: String,
    segments: Segments,
}

/// Segment information: SegmentTemplate, SegmentList, SegmentTimeline, SegmentBase.
#[derive(Debug, Clone, Default)]
struct Segments {
    media: Option<String>,
    timescale: Option<u64>,
    duration: Option<u64>,
    start_number: Option<u64>,
    end_number: Option<u64>,
    time_offset: u64,
    timeline: Vec<Repeated>,
    /// Addresses of a SegmentList.
    urls: Vec<String>,
    /// Whether the addresses are those of an element around this one, which a list of its own replaces.
    is_inherited: bool,
    /// Whether the index of the media file says where the segments are.
    is_in_index: bool,
}

/// S element of a SegmentTimeline: segments of one length, in units of the timescale.
#[derive(Debug, Clone, Copy)]
struct Repeated {
    time: Option<u64>,
    duration: u64,
    /// Number of further segments; if it is negative, they reach to the next S or to the end of the period.
    repeats: i64,
}

/// Element that hands values on to the elements inside.
#[derive(Debug, Clone, Default)]
struct Level {
    segments: Segments,
    /// Base address of the element around this one, and of this one.
    outer_base: String,
    base: Option<String>,
    height: Option<u64>,
    is_video: bool,
    /// Whether the pictures are for fast forward or for a seek bar, and not for playing.
    is_trick: bool,
}

/// Parser state: position in the manifest.
#[derive(Debug, Default)]
struct ParserState {
    /// Values by depth: of the MPD, the Period, the AdaptationSet and the Representation.
    levels: [Level; 4],
    depth: usize,
    /// Text of a BaseURL that is being read.
    base_text: Option<String>,
    representation: Option<Representation>,
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
        let not_xml = |error: &dyn std::fmt::Display| {
            wrong(format!("is not XML: {}", skyhop_model::one_line(&error.to_string())))
        };
        match event.map_err(|error| not_xml(&error))? {
            Event::Start(tag) => {
                is_manifest |= tag.local_name().as_ref() == b"MPD";
                state.open(&tag, &mut manifest).map_err(wrong)?;
            }
            Event::Empty(tag) => {
                is_manifest |= tag.local_name().as_ref() == b"MPD";
                state.open(&tag, &mut manifest).map_err(wrong)?;
                state.close(tag.local_name().as_ref(), &mut manifest).map_err(wrong)?;
            }
            Event::Text(text) => state.add_text(&text.decode().map_err(|error| not_xml(&error))?),
            Event::CData(text) => state.add_text(&text.decode().map_err(|error| not_xml(&error))?),
            // Elsewhere a document may use entities of its own.
            Event::GeneralRef(name) if state.base_text.is_some() => {
                let name = name.decode().map_err(|error| not_xml(&error))?;
                let text = quick_xml::escape::unescape(&format!("&{name};"))
                    .map_err(|error| not_xml(&error))?
                    .into_owned();
                state.add_text(&text);
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
            b"MPD" => {
                self.enter(0);
                manifest.length_s = length(tag, "mediaPresentationDuration")?;
            }
            b"Period" => {
                self.enter(1);
                let (start_s, length_s) = (length(tag, "start")?, length(tag, "duration")?);
                manifest.periods.push(Period { start_s, length_s, ..Period::default() });
            }
            b"AdaptationSet" => {
                let level = self.enter(2);
                level.is_video = is_video(tag)?;
                level.height = number(tag, "height")?;
            }
            b"Representation" => {
                let level = self.enter(3);
                level.is_video |= is_video(tag)?;
                self.representation = Some(Representation {
                    id: attribute(tag, "id")?.unwrap_or_default(),
                    bandwidth: number(tag, "bandwidth")?.unwrap_or(0),
                    height: number(tag, "height")?.or(level.height),
                    ..Representation::default()
                });
            }
            b"BaseURL" => self.base_text = Some(String::new()),
            b"EssentialProperty" | b"SupplementalProperty" => {
                let scheme = attribute(tag, "schemeIdUri")?.unwrap_or_default();
                self.levels[self.depth].is_trick |= TRICKS.contains(&scheme.as_str());
            }
            b"SegmentBase" => self.segments_mut().is_in_index = true,
            b"SegmentTemplate" | b"SegmentList" => self.segments_mut().read(tag)?,
            b"SegmentTimeline" => self.segments_mut().timeline.clear(),
            b"S" => self.segments_mut().add(tag)?,
            b"SegmentURL" => {
                let url = attribute(tag, "media")?.unwrap_or_default();
                self.segments_mut().add_url(url)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Begin an element at a depth, with the values of the element around it.
    fn enter(&mut self, depth: usize) -> &mut Level {
        let inherited = match depth.checked_sub(1).map(|outer| &self.levels[outer]) {
            Some(outer) => {
                Level { outer_base: outer.base().to_owned(), base: None, ..outer.clone() }
            }
            None => Level::default(),
        };
        self.depth = depth;
        self.levels[depth] = inherited;
        self.levels[depth].segments.is_inherited = true;
        &mut self.levels[depth]
    }

    fn add_text(&mut self, text: &str) {
        if let Some(base) = &mut self.base_text {
            base.push_str(text);
        }
    }

    /// Add the text of a BaseURL; of several in one element, the first counts.
    fn add_base(&mut self, text: &str) {
        let level = &mut self.levels[self.depth];
        level.base.get_or_insert_with(|| joined(&level.outer_base, text));
    }

    fn close(&mut self, name: &[u8], manifest: &mut Manifest) -> Result<(), String> {
        match name {
            b"Period" => self.depth = 0,
            b"AdaptationSet" => self.depth = 1,
            b"BaseURL" => {
                let text = self.base_text.take().unwrap_or_default();
                self.add_base(text.trim());
            }
            b"Representation" => {
                let level = std::mem::take(&mut self.levels[3]);
                self.depth = 2;
                let (Some(representation), Some(period)) =
                    (self.representation.take(), manifest.periods.last_mut())
                else {
                    return Ok(());
                };
                if level.is_video && !level.is_trick {
                    let base = level.base().to_owned();
                    let segments = level.segments;
                    period.representations.push(Representation {
                        base,
                        segments,
                        ..representation
                    });
                }
                if period.representations.len() > MOST_TRACKS {
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
        &mut self.levels[self.depth].segments
    }
}

impl Level {
    fn base(&self) -> &str {
        self.base.as_ref().unwrap_or(&self.outer_base)
    }
}

/// Address relative to a base address (RFC 3986 5.2, without dot segments).
fn joined(base: &str, address: &str) -> String {
    if address.contains("://") || address.starts_with('/') {
        return address.to_owned();
    }
    let directory = base.rfind('/').map_or("", |slash| &base[..=slash]);
    format!("{directory}{address}")
}

fn too_many() -> String {
    format!("has over {MOST_CHUNKS} segments; expected at most so many")
}

fn no_length() -> String {
    "has no length of the film; expected mediaPresentationDuration".to_owned()
}

impl Segments {
    fn read(&mut self, tag: &BytesStart<'_>) -> Result<(), String> {
        if let Some(media) = attribute(tag, "media")? {
            self.media = Some(media);
        }
        self.timescale = number(tag, "timescale")?.or(self.timescale);
        if let Some(duration) = number(tag, "duration")? {
            // It replaces the timeline of an element around this one.
            self.duration = Some(duration);
            self.timeline.clear();
        }
        self.start_number = number(tag, "startNumber")?.or(self.start_number);
        self.end_number = number(tag, "endNumber")?.or(self.end_number);
        self.time_offset = number(tag, "presentationTimeOffset")?.unwrap_or(self.time_offset);
        Ok(())
    }

    /// Add an S element of a SegmentTimeline.
    fn add(&mut self, tag: &BytesStart<'_>) -> Result<(), String> {
        let duration = number(tag, "d")?.filter(|duration| *duration > 0);
        let Some(duration) = duration else { return Err("an S has no d above 0".to_owned()) };
        if self.timeline.len() >= MOST_CHUNKS {
            return Err(too_many());
        }
        let (time, repeats) = (number(tag, "t")?, number(tag, "r")?.unwrap_or(0));
        self.timeline.push(Repeated { time, duration, repeats });
        Ok(())
    }

    fn add_url(&mut self, url: String) -> Result<(), String> {
        if std::mem::take(&mut self.is_inherited) {
            self.urls.clear();
        }
        if self.urls.len() >= MOST_CHUNKS {
            return Err(too_many());
        }
        self.urls.push(url);
        Ok(())
    }

    fn scale(&self) -> f64 {
        self.timescale.unwrap_or(1).max(1) as f64
    }

    /// Start and length of each segment of the SegmentTimeline, in units of the timescale.
    fn timeline(&self, length_s: Option<f64>) -> Result<Vec<(u64, u64)>, String> {
        let mut segments = Vec::new();
        let mut time = 0_u64;
        for (index, one) in self.timeline.iter().enumerate() {
            time = one.time.unwrap_or(time);
            let count = match u64::try_from(one.repeats) {
                Ok(repeats) => repeats.saturating_add(1),
                Err(_) => {
                    let next = self.timeline.get(index + 1).and_then(|next| next.time);
                    let end = next.map_or_else(|| self.end(length_s), |time| Ok(time as f64))?;
                    whole_chunks(end - time as f64, one.duration as f64)?
                }
            };
            if count.saturating_add(segments.len() as u64) > MOST_CHUNKS as u64 {
                return Err(too_many());
            }
            for _ in 0..count {
                segments.push((time, one.duration));
                time = time.saturating_add(one.duration);
            }
        }
        Ok(segments)
    }

    /// End of a period of this length, in units of the timescale.
    fn end(&self, length_s: Option<f64>) -> Result<f64, String> {
        let length_s = length_s.ok_or_else(no_length)?;
        Ok(self.time_offset as f64 + length_s * self.scale())
    }

    /// Return the number of segments, and the length of each in seconds.
    fn lengths(&self, length_s: Option<f64>) -> Result<(usize, f64), String> {
        if !self.timeline.is_empty() {
            return self.timeline_lengths(&self.timeline(length_s)?);
        }
        let Some(duration) = self.duration.filter(|duration| *duration > 0) else {
            let what = if self.is_in_index {
                "has SegmentBase, so that only the index of the media file has the lengths of segments; expected \
                 SegmentTemplate or SegmentList: write it so, for example with MP4Box -dash 4000 -profile live"
            } else {
                "has no length of segments; expected @duration or a SegmentTimeline"
            };
            return Err(what.to_owned());
        };
        let chunk_s = duration as f64 / self.scale();
        if !self.urls.is_empty() {
            return Ok((self.urls.len(), chunk_s));
        }
        if let Some(last) = self.end_number {
            let count = last.saturating_add(1).saturating_sub(self.start_number.unwrap_or(1));
            return Ok((usize::try_from(count).unwrap_or(usize::MAX), chunk_s));
        }
        let chunks = whole_chunks(length_s.ok_or_else(no_length)?, chunk_s)?;
        Ok((usize::try_from(chunks).unwrap_or(usize::MAX), chunk_s))
    }

    fn timeline_lengths(&self, segments: &[(u64, u64)]) -> Result<(usize, f64), String> {
        let even = &segments[..segments.len().saturating_sub(1).max(1).min(segments.len())];
        let mean = even.iter().map(|(_, d)| *d as f64).sum::<f64>() / even.len().max(1) as f64;
        let is_odd = |(_, d): &&(u64, u64)| (*d as f64 - mean).abs() > MOST_UNEVEN * mean;
        if let (Some(odd), Some(first)) = (even.iter().find(is_odd), even.first()) {
            let (first, odd) = (first.1 as f64 / self.scale(), odd.1 as f64 / self.scale());
            return Err(format!("has segments of {first} s and of {odd} s; expected one length"));
        }
        Ok((segments.len(), mean / self.scale()))
    }
}

/// Number of chunks of one length in a time; a remainder within rounding errors does not count as another chunk.
fn whole_chunks(length: f64, chunk: f64) -> Result<u64, String> {
    let chunks = (length / chunk - 1e-3).ceil();
    if chunks.is_nan() || chunks > MOST_CHUNKS as f64 { Err(too_many()) } else { Ok(chunks as u64) }
}

impl Representation {
    /// Addresses of the segments; `None` for one that the template does not give.
    fn addresses(
        &self,
        chunks: usize,
        length_s: Option<f64>,
    ) -> Result<Vec<Option<String>>, String> {
        let timeline = self.segments.timeline(length_s)?;
        let address = |index: usize| {
            let time = match timeline.get(index) {
                Some((time, _)) => *time,
                None => self.segments.duration.unwrap_or(0).saturating_mul(index as u64),
            };
            let relative = match self.segments.urls.get(index) {
                Some(url) => url.clone(),
                None => self.name_by_template(index, time)?,
            };
            Some(joined(&self.base, &relative))
        };
        Ok((0..chunks).map(address).collect())
    }

    /// Address of a segment, counted from 0; `None` if the template cannot be expanded.
    fn name_by_template(&self, index: usize, time: u64) -> Option<String> {
        let number = self.segments.start_number.unwrap_or(1).saturating_add(index as u64);
        let mut address = String::new();
        for (place, part) in self.segments.media.as_ref()?.split('$').enumerate() {
            match part {
                _ if place % 2 == 0 => address.push_str(part),
                "" => address.push('$'),
                "RepresentationID" => address.push_str(&self.id),
                _ if part.starts_with("Number") => address.push_str(&padded(part, number)),
                _ if part.starts_with("Time") => address.push_str(&padded(part, time)),
                _ if part.starts_with("Bandwidth") => {
                    address.push_str(&padded(part, self.bandwidth));
                }
                _ => return None,
            }
        }
        Some(address)
    }

    fn track(&self) -> Track {
        let bitrate = Rate::from_bits_per_second(self.bandwidth);
        Track { bitrate, name: self.height.map(|height| format!("{height}p")) }
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
        self.resolve_lengths();
        let mut parts = Vec::new();
        for period in &mut self.periods {
            period.representations.sort_by_key(|one| one.bandwidth);
            parts.push(period.chunks()?);
        }
        let longest = (0..parts.len()).max_by_key(|index| (parts[*index].0, usize::MAX - index));
        let Some(longest) = longest.filter(|index| parts[*index].0 > 0) else {
            return Err(
                "the film has no tracks; expected at least one video Representation".to_owned()
            );
        };
        self.check_alike(&parts, longest)?;
        let chunk = Duration::from_secs_f64(parts[longest].1);
        let tracks = self.periods[longest].tracks();
        let sizes = match self.known_sizes(&parts, size_of)? {
            Some(sizes) => sizes,
            None => self.generated_sizes(&parts, chunk),
        };
        Ok(Film::new(origin, chunk, tracks, &sizes))
    }

    /// Set the lengths that follow from the start of the next period, or from the end of the film (5.3.2.1).
    fn resolve_lengths(&mut self) {
        let mut start_s = Some(0.0);
        for index in 0..self.periods.len() {
            start_s = self.periods[index].start_s.or(start_s);
            let end_s = match self.periods.get(index + 1) {
                Some(next) => next.start_s,
                None => self.length_s,
            };
            let period = &mut self.periods[index];
            let until_end = end_s.zip(start_s).map(|(end_s, start_s)| (end_s - start_s).max(0.0));
            period.length_s = period.length_s.or(until_end);
            start_s = start_s.zip(period.length_s).map(|(start_s, length_s)| start_s + length_s);
        }
    }

    /// Check that the player can go from one period to the next: the same number of tracks, and one length of chunks.
    fn check_alike(&self, parts: &[(usize, f64)], longest: usize) -> Result<(), String> {
        let total = parts.iter().fold(0_usize, |sum, (chunks, _)| sum.saturating_add(*chunks));
        if total > MOST_CHUNKS {
            return Err(too_many());
        }
        let describe = |index: usize| {
            let (tracks, (_, chunk_s)) = (self.periods[index].representations.len(), parts[index]);
            match tracks {
                0 => format!("period {} has no video tracks", index + 1),
                _ => format!(
                    "period {} has {tracks} video tracks in segments of {chunk_s} s",
                    index + 1
                ),
            }
        };
        let (tracks, chunk_s) = (self.periods[longest].representations.len(), parts[longest].1);
        let differs = (0..parts.len()).find(|index| {
            let is_uneven = (parts[*index].1 - chunk_s).abs() > MOST_UNEVEN * chunk_s;
            self.periods[*index].representations.len() != tracks || is_uneven
        });
        differs.map_or(Ok(()), |other| {
            Err(format!(
                "{}, but {}; expected the same in all: give a manifest of one period",
                describe(longest),
                describe(other)
            ))
        })
    }

    /// File sizes by track; `None` if no size is known.
    fn known_sizes(
        &self,
        parts: &[(usize, f64)],
        size_of: &dyn Fn(&str) -> Option<u64>,
    ) -> Result<Option<Vec<Vec<u64>>>, String> {
        let (mut missing, mut known, mut total) = (None, 0, 0);
        let mut sizes = Vec::new();
        for track in 0..self.periods.first().map_or(0, |period| period.representations.len()) {
            let mut of_track = Vec::new();
            for (period, (chunks, _)) in self.periods.iter().zip(parts) {
                total += chunks;
                for file in period.representations[track].addresses(*chunks, period.length_s)? {
                    match file.as_deref().and_then(size_of) {
                        Some(size) => of_track.push(size),
                        None => missing = missing.or(file),
                    }
                }
            }
            known += of_track.len();
            sizes.push(of_track);
        }
        match missing {
            _ if known == 0 => Ok(None),
            Some(file) => {
                Err(format!("{known} of the film's files are there, but not {}", Quoted(&file)))
            }
            None if known < total => Ok(None),
            None => Ok(Some(sizes)),
        }
    }

    /// Sizes by track that follow from the bitrates of each period.
    fn generated_sizes(&self, parts: &[(usize, f64)], chunk: Duration) -> Vec<Vec<u64>> {
        let mut sizes = vec![Vec::new(); self.periods[0].representations.len()];
        for (period, (chunks, _)) in self.periods.iter().zip(parts) {
            let of_period = generated_sizes::constant(&period.tracks(), chunk, *chunks);
            for (all, more) in sizes.iter_mut().zip(of_period) {
                all.extend(more);
            }
        }
        sizes
    }
}

impl Period {
    fn tracks(&self) -> Vec<Track> {
        self.representations.iter().map(Representation::track).collect()
    }

    /// Number of chunks, and the length of each in seconds; none without video.
    fn chunks(&self) -> Result<(usize, f64), String> {
        let Some(first) = self.representations.first() else { return Ok((0, 0.0)) };
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
        Ok((chunks, chunk_s))
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

fn number<T: std::str::FromStr>(tag: &BytesStart<'_>, key: &str) -> Result<Option<T>, String> {
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

/// Parse an xs:duration, in seconds; years and months, which have no fixed length, have to be 0.
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
            'Y' | 'M' if !in_time && digits.parse() == Ok(0.0) => 0.0,
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
