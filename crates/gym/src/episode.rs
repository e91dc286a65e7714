//! One run, with those who decide in it.

use std::sync::Arc;

use skyhop_cc::{CcError, Controller, Setup};
use skyhop_ccfile::decided_by;
use skyhop_experiment::Experiment;
use skyhop_model::POLICY_CC;
use skyhop_policy::{Card, Desk, Question, Waiting};
use skyhop_sim::{Outside, Session};
use skyhop_units::{Bytes, Instant};

use crate::error::GymError;
use crate::interval::{FIGURES, Interval, asked_at, reported, way_at};
use crate::rewards::Reward;

/// So many intervals are the newest.
const RECENT: usize = 10;

/// Whether an episode goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Ended {
    /// It does.
    Not,
    /// All that its agents had to send has arrived.
    Complete,
    /// The run's time is over.
    TimeUp,
}

/// Who is asked, and what it got for the interval before.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// The agent, in the order of flows; at the end that which was asked last.
    pub agent: usize,
    /// For the interval since it was asked last; 0 at its first question and at the end.
    pub reward: f64,
    /// Whether the episode goes on.
    pub ended: Ended,
    /// What to know of that interval: [`FIGURES`].
    pub figures: [f64; FIGURES.len()],
}

/// One run, with those who decide in it: it stands still while one of them is asked.
#[derive(Debug)]
pub struct Episode {
    experiment: Experiment,
    session: Session,
    desk: Arc<Desk>,
    reward: Reward,
    agents: Vec<Agent>,
    /// That of the agent whose turn it is.
    question: Option<Question>,
    seen: Vec<f32>,
    last: Step,
}

/// Somebody who decides for a flow.
#[derive(Debug)]
struct Agent {
    flow: u32,
    /// Its place among all flows, in the order of ids.
    place: usize,
    /// When it was asked last, and what each flow had received by then.
    asked: Option<(Instant, Vec<Bytes>)>,
    recent_bps: Vec<f64>,
}

/// Who makes congestion controls that ask.
#[derive(Debug)]
struct Askers {
    card: Arc<Card>,
    desk: Arc<Desk>,
    flows: Vec<u32>,
}

impl Outside for Askers {
    fn make(&self, flow: u32, setup: &Setup<'_>) -> Option<Result<Controller, CcError>> {
        self.flows.contains(&flow).then(|| {
            let waiting = Waiting::new(&self.card, &self.desk, flow);
            decided_by(Box::new(waiting), &self.card, setup)
        })
    }

    fn is_asked(&self) -> bool {
        self.desk.is_asked()
    }
}

impl Episode {
    /// Begins one, in which `card` says what agents see and do, and goes on to the first question.
    ///
    /// # Errors
    /// Nobody has anything to decide, or the simulator does not run it.
    pub fn begin(
        experiment: Experiment,
        card: &Arc<Card>,
        reward: Reward,
    ) -> Result<Self, GymError> {
        let agents: Vec<Agent> = (experiment.flows.iter().enumerate())
            .filter(|(_, flow)| flow.cc() == Some(POLICY_CC))
            .map(|(place, flow)| Agent::new(flow.id, place))
            .collect();
        if agents.is_empty() {
            return Err(GymError::NoAgent);
        }
        let desk = Arc::new(Desk::default());
        let flows = agents.iter().map(|agent| agent.flow).collect();
        let askers = Askers { card: Arc::clone(card), desk: Arc::clone(&desk), flows };
        let session = Session::new(&experiment, Arc::new(askers))?;
        let mut episode = Self {
            experiment,
            session,
            desk,
            reward,
            agents,
            question: None,
            seen: vec![card.observation.filler; card.inputs()],
            last: Step { agent: 0, reward: 0.0, ended: Ended::Not, figures: [0.0; FIGURES.len()] },
        };
        episode.go_on();
        Ok(episode)
    }

    /// How many agents there are.
    pub fn agents(&self) -> usize {
        self.agents.len()
    }

    /// What the network of the agent that is asked would see.
    pub fn seen(&self) -> &[f32] {
        &self.seen
    }

    /// Who is asked.
    pub fn last(&self) -> &Step {
        &self.last
    }

    /// What each flow over TCP has brought to its receiver so far, in the order of ids.
    pub fn received(&self) -> impl Iterator<Item = Bytes> {
        self.session.received()
    }

    /// Answers with what a network would have said, and goes on to the next question. After the end nothing changes.
    pub fn step(&mut self, output: f64) -> &Step {
        if let Some(question) = self.question.take() {
            self.desk.answer(question.asker, output);
            self.go_on();
        }
        &self.last
    }

    fn go_on(&mut self) {
        let asked = self.session.advance();
        let Some(question) = self.desk.take().filter(|_| asked) else {
            let complete = self.agents.iter().all(|agent| self.session.is_complete(agent.place));
            let ended = if complete { Ended::Complete } else { Ended::TimeUp };
            self.last = Step { reward: 0.0, ended, ..self.last };
            return;
        };
        let agent = self.agents.iter().position(|agent| agent.flow == question.flow);
        let agent = agent.expect("who asks is an agent");
        let (reward, figures) = self.account(agent, &question);
        self.last = Step { agent, reward, ended: Ended::Not, figures };
        self.seen.copy_from_slice(&question.seen);
        self.question = Some(question);
    }

    /// What an agent gets for the interval that this question ends, and what to know of that.
    fn account(&mut self, agent: usize, question: &Question) -> (f64, [f64; FIGURES.len()]) {
        let now = asked_at(question);
        let received: Vec<Bytes> = self.session.received().collect();
        let flows = &self.experiment.flows;
        let place = self.agents[agent].place;
        let (link_bps, base_rtt_s) = way_at(&self.experiment, &flows[place], now);
        let before = self.agents[agent].asked.replace((now, received.clone()));
        let (since, old) = before.as_ref().map_or_else(
            || (flows[place].start, vec![Bytes::ZERO; received.len()]),
            |(since, old)| (*since, old.clone()),
        );
        let interval_s = now.saturating_since(since).as_secs_f64().max(1e-6);
        let grown =
            |place: usize| (received[place] - old[place]).as_u64() as f64 * 8.0 / interval_s;
        let goodput_bps = grown(place);
        let (mut agents_bps, mut others_bps) = (Vec::new(), Vec::new());
        for (other, flow) in flows.iter().enumerate() {
            let is_sending = flow.start < now && flow.stop > since && flow.cc().is_some();
            if other == place || !is_sending || self.session.is_complete(other) {
                continue;
            }
            let is_agent = self.agents.iter().any(|agent| agent.place == other);
            if is_agent { &mut agents_bps } else { &mut others_bps }.push(grown(other));
        }
        let agent = &mut self.agents[agent];
        agent.note(goodput_bps);
        let interval = Interval {
            reported: reported(question),
            at_s: now.saturating_since(Instant::START).as_secs_f64(),
            link_bps,
            base_rtt_s,
            goodput_bps,
            agents_bps: &agents_bps,
            others_bps: &others_bps,
            recent_bps: &agent.recent_bps,
        };
        let reward = before.map_or(0.0, |_| (self.reward.of)(&interval));
        (reward, interval.figures())
    }
}

impl Agent {
    fn new(flow: u32, place: usize) -> Self {
        Self { flow, place, asked: None, recent_bps: Vec::new() }
    }

    fn note(&mut self, goodput_bps: f64) {
        if self.recent_bps.len() == RECENT {
            self.recent_bps.remove(0);
        }
        self.recent_bps.push(goodput_bps);
    }
}
