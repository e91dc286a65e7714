//! Drawing of a path from a profile: every random value is fixed before the run.

use skyhop_model::{End, PathEventKind};
use skyhop_path::{Endpoint, Frame, PathEvent, PathHeader, PathTrace, States, TraceError};
use skyhop_units::{Duration, Instant, Rate, UtcInstant};
use thiserror::Error;

use crate::losses::bursts;
use crate::process::{Process, Stream, value_at};
use crate::profile::{Bursts, Frames, Phases, Profile, RateModel, RoundTrip, Way};
use crate::steps::{Cursor, Steps};

/// Largest number of frames of a drawn path: more than a day of a profile with waits every 10 ms.
const MOST_FRAMES: usize = 20_000_000;

/// Time between two values of a rate that does not fluctuate, so that its factors by phase take effect.
const PHASE_STEP: Duration = Duration::from_millis(100);

/// Input of a draw in addition to the profile: ends, time, seed, and a computed path.
#[derive(Debug, Clone)]
pub struct Request<'p> {
    /// Names of the ends `from`, at which the terminal is, and `to`; those of `computed` if it is given.
    pub ends: [Endpoint; 2],
    /// UTC time at which the path begins, which fixes the marks of the grid.
    pub start: UtcInstant,
    /// Duration of the path.
    pub duration: Duration,
    /// Seed of all random draws; another seed draws another path from the same profile.
    pub seed: u64,
    /// Computed path, with its terminal at `from`, whose propagation delays replace the profile's floors.
    pub computed: Option<&'p PathTrace>,
}

/// Reason for which no path can be drawn.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DrawError {
    /// The profile has no delays, and there is no computed path.
    #[error(
        "the profile {profile} holds no round trips of its own; expected one that does, or relay = \"starlink\", which \
         computes them"
    )]
    NoDelays {
        /// Name of the profile.
        profile: String,
    },
    /// The path has too many frames.
    #[error("takes {frames} changes of the link; at most {MOST_FRAMES}: shorten run.duration")]
    TooLong {
        /// Number of frames that the path would have.
        frames: usize,
    },
    /// The path is invalid: it is never connected.
    #[error(transparent)]
    Trace(#[from] TraceError),
}

/// Number of the random stream of each part.
#[derive(Debug, Clone, Copy)]
enum Part {
    Floor = 1,
    Wait,
    Holes,
    Outages,
    /// First part of a direction: those of [`WayPart`] follow, up to the last kind of bursts.
    Up = 16,
    Down = 32,
}

/// Parts of one direction, counted from [`Part::Up`] or [`Part::Down`].
#[derive(Debug, Clone, Copy)]
enum WayPart {
    Floor,
    Wait,
    Level,
    Fluctuation,
    Frames,
    /// First kind of bursts.
    Bursts,
}

/// Draw a path from a profile. The same profile, request and seed give the same path on every machine.
///
/// # Errors
/// The profile has no delays and neither has the request, or the path would be too long.
pub fn draw(profile: &Profile, request: &Request<'_>) -> Result<PathTrace, DrawError> {
    if request.computed.is_none() && !profile.has_delays() {
        return Err(DrawError::NoDelays { profile: profile.name.clone() });
    }
    // Before anything is drawn, so that a long path does not take all memory.
    let steps = request.duration.as_nanos() / profile.shortest_step().as_nanos().max(1);
    if steps as usize > MOST_FRAMES {
        return Err(DrawError::TooLong { frames: steps as usize });
    }
    let drawing = Drawing::new(profile, request);
    let holes = drawing.holes();
    let waits = drawing.waits(&holes);
    let floors = drawing.floors();
    let ways = [(&profile.up, Part::Up), (&profile.down, Part::Down)];
    let rates = ways.map(|(way, part)| drawing.rates(way.rate.as_ref(), part));
    let losses = ways.map(|(way, part)| drawing.losses(way, part));
    let layers = Layers { waits, floors, rates, losses };
    let times = layers.times(request.computed)?;
    let mut frames = layers.frames(&times, request);
    add_events(&mut frames, holes.into_iter().chain(drawing.outages()).collect());
    let trace = PathTrace { header: header(profile, request), frames };
    trace.validate()?;
    Ok(trace)
}

fn header(profile: &Profile, request: &Request<'_>) -> PathHeader {
    let mut header = match request.computed {
        Some(computed) => computed.header.clone(),
        None => PathHeader::plain(
            format!("access {}", profile.name),
            request.ends.clone(),
            request.duration,
            PHASE_STEP,
        ),
    };
    header.between_frames = skyhop_path::BetweenFrames::Step;
    header.start = Some(request.start);
    header.seed = request.seed;
    header.access = Some(profile.name.clone());
    header.dish = Some(End::From);
    header.in_order = true;
    header.directed = true;
    header
}

/// State that all parts of a drawing share.
struct Drawing<'d> {
    profile: &'d Profile,
    phases: Phases,
    end: Instant,
    seed: u64,
    is_computed: bool,
}

impl<'d> Drawing<'d> {
    fn new(profile: &'d Profile, request: &Request<'_>) -> Self {
        Self {
            profile,
            phases: Phases::new(profile.grid, request.start),
            end: Instant::START + request.duration,
            seed: request.seed,
            is_computed: request.computed.is_some(),
        }
    }

    fn stream(&self, part: Part) -> Stream {
        Stream::new(self.seed, part as u64)
    }

    fn stream_of(&self, way: Part, part: WayPart) -> Stream {
        Stream::new(self.seed, way as u64 + part as u64)
    }

    /// Values of a process in its steps, which are aligned to the marks.
    fn steps(&self, process: &Process, stream: &mut Stream) -> Steps {
        let times = self.times_of(process.every);
        let slot_of = |step: u64| self.phases.slot(times[step as usize]);
        let values = process.values(stream, times.len() as u64, slot_of);
        Steps(times.iter().copied().zip(values).collect())
    }

    /// Values of a process at each mark, and at the path's start.
    fn by_slot(&self, process: &Process, stream: &mut Stream) -> Steps {
        self.at_marks(process, self.scores_by_slot(process, stream))
    }

    /// Normal scores of a process at each mark, and at the path's start.
    fn scores_by_slot(&self, process: &Process, stream: &mut Stream) -> Vec<f64> {
        process.scores(stream, self.phases.marks(self.end).count() as u64, |step| step as i64)
    }

    /// Values of a process from its normal scores at each mark, and at the path's start.
    fn at_marks(&self, process: &Process, scores: Vec<f64>) -> Steps {
        let marks = self.phases.marks(self.end).map(|mark| mark.plus(0.0));
        let values = scores.into_iter().map(|score| value_at(&process.quantiles, score));
        Steps(marks.zip(values).filter(|(at, _)| *at < self.end).collect())
    }

    /// Path's start, and then the times in steps of `every` counted from a mark.
    fn times_of(&self, every: Duration) -> Vec<Instant> {
        let every_ns = every.as_nanos().max(1);
        let since_ns = self.phases.marks(self.end).next().map_or(0, |mark| mark.0.unsigned_abs());
        let first_ns = every_ns - since_ns % every_ns;
        let later = (0..).map(|step| Instant::from_nanos(first_ns + step * every_ns));
        [Instant::START].into_iter().chain(later.take_while(|at| *at < self.end)).collect()
    }

    /// Lowest one-way delays up and down, ms. With a computed path, only the ground segment's time remains.
    fn floors(&self) -> [Steps; 2] {
        if self.is_computed {
            let half = Steps(vec![(Instant::START, self.profile.ground_ms / 2.0)]);
            return [half.clone(), half];
        }
        if let Some(RoundTrip { floor_ms, .. }) = &self.profile.round_trip {
            return halves(&self.by_slot(floor_ms, &mut self.stream(Part::Floor)));
        }
        [(&self.profile.up, Part::Up), (&self.profile.down, Part::Down)].map(|(way, part)| {
            let mut stream = self.stream_of(part, WayPart::Floor);
            way.floor_ms.as_ref().map(|f| self.by_slot(f, &mut stream)).unwrap_or_default()
        })
    }

    /// Waits up and down, ms.
    fn waits(&self, holes: &[PathEvent]) -> [Steps; 2] {
        let waits = match &self.profile.round_trip {
            Some(RoundTrip { wait_ms, .. }) => {
                [self.steps(wait_ms, &mut self.stream(Part::Wait)), Steps::default()]
            }
            None => [(&self.profile.up, Part::Up), (&self.profile.down, Part::Down)].map(
                |(way, part): (&Way, Part)| {
                    let mut stream = self.stream_of(part, WayPart::Wait);
                    way.wait_ms.as_ref().map(|w| self.steps(w, &mut stream)).unwrap_or_default()
                },
            ),
        };
        waits.map(|waits| self.settled(waits, holes))
    }

    /// Waits with the factor of the time after each hole.
    fn settled(&self, mut waits: Steps, holes: &[PathEvent]) -> Steps {
        let Some(reconfiguration) = &self.profile.reconfiguration else { return waits };
        let lasts = Duration::from_secs_f64(reconfiguration.settling_ms / 1e3);
        for hole in holes {
            let ends = hole.at + hole.outage;
            let first = waits.0.partition_point(|(at, _)| *at < hole.at);
            let after = waits.0[first..].iter_mut().take_while(|(at, _)| *at < ends + lasts);
            after.for_each(|(_, wait_ms)| *wait_ms *= reconfiguration.settling_factor);
        }
        waits
    }

    /// Holes at the marks, as handovers.
    fn holes(&self) -> Vec<PathEvent> {
        let Some(hole) = &self.profile.reconfiguration else { return Vec::new() };
        let mut stream = self.stream(Part::Holes);
        let drawn = self.phases.marks(self.end).map(|mark| {
            let (is_there, begin_ms, lasts_ms) = (
                stream.unit() <= hole.share,
                stream.value(&hole.begin_ms),
                stream.value(&hole.hole_ms),
            );
            let (begin, end) = (mark.plus(begin_ms / 1e3), mark.plus((begin_ms + lasts_ms) / 1e3));
            let outage = if is_there { end.saturating_since(begin) } else { Duration::ZERO };
            PathEvent { at: begin, kind: PathEventKind::End, hop: None, outage }
        });
        // The mark before the start counts only if its hole still lasts.
        drawn
            .filter(|event| {
                event.at < self.end && (event.at > Instant::START || event.outage > Duration::ZERO)
            })
            .collect()
    }

    /// Outages outside the marks.
    fn outages(&self) -> Vec<PathEvent> {
        let Some(outages) = &self.profile.outages else { return Vec::new() };
        let mut stream = self.stream(Part::Outages);
        let mut next = |after: Instant| {
            // An exponential time over a rate of zero lasts longer than any path.
            let wait_s = stream.exponential() * 3_600.0 / outages.per_hour;
            let at = after + Duration::from_secs_f64(wait_s.min(1e9));
            let outage = Duration::from_secs_f64(stream.value(&outages.lasts_ms) / 1e3);
            PathEvent { at, kind: PathEventKind::Reroute, hop: None, outage }
        };
        let first = next(Instant::START);
        let following = |last: &PathEvent| Some(next(last.at + last.outage));
        let events = std::iter::successors(Some(first), following);
        events.take_while(|event| event.at < self.end).collect()
    }

    /// Capacity of one direction, bit/s; no steps if the profile has none.
    fn rates(&self, model: Option<&RateModel>, way: Part) -> Steps {
        let Some(model) = model else { return Steps::default() };
        let levels = self.by_slot(&model.level_mbps, &mut self.stream_of(way, WayPart::Level));
        let fluctuation = match &model.fluctuation {
            Some(process) => self.steps(process, &mut self.stream_of(way, WayPart::Fluctuation)),
            None => Steps(self.times_of(PHASE_STEP).into_iter().map(|at| (at, 1.0)).collect()),
        };
        let mut level = levels.cursor(1.0);
        let rates = fluctuation.0.iter().map(|&(at, ratio)| {
            (at, level.at(at) * ratio * self.phases.factor(&model.phases, at) * 1e6)
        });
        let rates = Steps(rates.collect());
        match &model.frames {
            Some(frames) => self.framed(&rates, frames, &mut self.stream_of(way, WayPart::Frames)),
            None => rates,
        }
    }

    /// Rates of a link that serves for a part of each frame only.
    fn framed(&self, rates: &Steps, frames: &Frames, stream: &mut Stream) -> Steps {
        let period = Duration::from_secs_f64(frames.period_ms / 1e3);
        let (busy, free) = (period.mul_f64(frames.busy), period.mul_f64(1.0 - frames.busy));
        let mut rate = rates.cursor(0.0);
        let mut framed = Steps::default();
        let mut at = Instant::START;
        while at < self.end {
            let begin = at + free.mul_f64(frames.spread * stream.unit());
            framed.0.push((begin, rate.at(at) / frames.busy));
            framed.0.push((begin + busy, 0.0));
            at += period;
        }
        framed
    }

    /// Loss of one direction: the independent loss, and each kind of bursts.
    fn losses(&self, of: &Way, way: Part) -> Vec<Steps> {
        let Some(model) = &of.loss else { return Vec::new() };
        let independent = Steps(vec![(Instant::START, model.independent)]);
        let kinds = (0..).zip(&model.bursts).map(|(kind, one)| {
            let part = way as u64 + WayPart::Bursts as u64 + kind;
            let mut stream = Stream::new(self.seed, part);
            let level = self.burst_level(one, of.rate.as_ref(), way, &mut stream);
            bursts(one, &self.phases, self.end, &level, &mut stream)
        });
        [independent].into_iter().chain(kinds).collect()
    }

    /// Ratio of a kind of bursts' rate to its mean by slot; no steps if it is the same in all slots.
    fn burst_level(
        &self,
        bursts: &Bursts,
        rate: Option<&RateModel>,
        way: Part,
        stream: &mut Stream,
    ) -> Steps {
        let Some(level) = &bursts.level else { return Steps::default() };
        let mut scores = self.scores_by_slot(level, stream);
        if let Some(rate) = rate {
            // The capacity's own scores, which its stream gives again.
            let mut stream = self.stream_of(way, WayPart::Level);
            let shared = bursts.with_rate;
            let own = (1.0 - shared * shared).max(0.0).sqrt();
            let of_rate = self.scores_by_slot(&rate.level_mbps, &mut stream);
            for (score, rate) in scores.iter_mut().zip(of_rate) {
                *score = own * *score + shared * rate;
            }
        }
        self.at_marks(level, scores)
    }
}

fn halves(round_trips: &Steps) -> [Steps; 2] {
    let half = Steps(round_trips.0.iter().map(|&(at, ms)| (at, ms / 2.0)).collect());
    [half.clone(), half]
}

/// Everything that changes over time, in the order up, down.
struct Layers {
    waits: [Steps; 2],
    floors: [Steps; 2],
    rates: [Steps; 2],
    losses: [Vec<Steps>; 2],
}

/// Cursors over the layers of one direction.
struct WayCursors<'l> {
    wait: Cursor<'l>,
    floor: Cursor<'l>,
    rate: Option<Cursor<'l>>,
    losses: Vec<Cursor<'l>>,
}

impl WayCursors<'_> {
    /// Delay that this direction adds to a computed one.
    fn delay(&mut self, at: Instant) -> Duration {
        Duration::from_secs_f64((self.floor.at(at) + self.wait.at(at)) / 1e3)
    }

    fn rate(&mut self, at: Instant) -> Option<Rate> {
        let bps = self.rate.as_mut()?.at(at);
        Some(Rate::from_bits_per_second(bps.round() as u64))
    }

    fn loss(&mut self, at: Instant) -> Option<f64> {
        let kept = self.losses.iter_mut().map(|loss| 1.0 - loss.at(at)).product::<f64>();
        (!self.losses.is_empty()).then_some(1.0 - kept)
    }
}

impl Layers {
    /// Times at which anything changes, in order.
    fn times(&self, computed: Option<&PathTrace>) -> Result<Vec<Instant>, DrawError> {
        let single = [&self.waits, &self.floors, &self.rates].into_iter().flatten();
        let steps = single.chain(self.losses.iter().flatten());
        let mut times: Vec<Instant> = steps.flat_map(Steps::times).collect();
        times.push(Instant::START);
        times.extend(computed.iter().flat_map(|path| path.frames.iter().map(|frame| frame.at)));
        times.sort_unstable();
        times.dedup();
        match times.len() {
            frames if frames > MOST_FRAMES => Err(DrawError::TooLong { frames }),
            _ => Ok(times),
        }
    }

    fn cursors(&self, way: usize) -> WayCursors<'_> {
        WayCursors {
            wait: self.waits[way].cursor(0.0),
            floor: self.floors[way].cursor(0.0),
            rate: (!self.rates[way].0.is_empty()).then(|| self.rates[way].cursor(0.0)),
            losses: self.losses[way].iter().map(|loss| loss.cursor(0.0)).collect(),
        }
    }

    /// Frames at `times`, before any events.
    fn frames(&self, times: &[Instant], request: &Request<'_>) -> Vec<Frame> {
        // The direction `from -> to` is up.
        let (mut there, mut back) = (self.cursors(0), self.cursors(1));
        let mut computed = request.computed.map(States::new);
        let frames = times.iter().map(|&at| {
            let (added, added_back) = (there.delay(at), back.delay(at));
            let frame = match &mut computed {
                Some(path) => {
                    let mut frame = path.at(at);
                    let added = [added, added_back].map(|delay| delay.as_nanos() as i64);
                    frame.add_delays(added, End::From);
                    frame
                }
                None => Frame {
                    at,
                    delay: Some(added),
                    delay_back: Some(added_back),
                    ..Frame::default()
                },
            };
            Frame {
                rate: there.rate(at),
                rate_back: back.rate(at),
                loss: there.loss(at),
                loss_back: back.loss(at),
                ..frame
            }
        });
        frames.collect()
    }
}

/// Give each event to the frame in whose time it falls.
fn add_events(frames: &mut [Frame], mut events: Vec<PathEvent>) {
    events.sort_by_key(|event| event.at);
    for event in events {
        let next = frames.partition_point(|frame| frame.at <= event.at);
        frames[next.saturating_sub(1)].events.push(event);
    }
}
