//! One run as an episode, with the agents that decide for its flows.

use std::sync::Arc;

use skyhop_cc::{CcError, Controller, Setup};
use skyhop_ccfile::controller_decided_by;
use skyhop_experiment::Experiment;
use skyhop_model::POLICY_CC;
use skyhop_policy::{Card, DecisionQueue, Question, QueuedDecider};
use skyhop_sim::{ExternalPolicy, Session};
use skyhop_units::{Bytes, Instant};

use crate::error::GymError;
use crate::interval::{FIGURES, Interval, question_time, reported, route_rate_and_rtt};
use crate::rewards::Reward;

/// Number of most recent intervals kept, from which rewards compute how steady a flow is.
const RECENT_INTERVALS: usize = 10;

/// State of an episode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum EpisodeStatus {
    /// The episode is still running.
    Running,
    /// All data that the agents' flows had to send has arrived.
    Complete,
    /// The run's duration is over.
    TimeUp,
}

/// Current question of an episode: the agent that is asked, and its reward for the interval that has just
/// ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// Index of the agent, in the order of flows; after the end of the episode, the agent that was asked last.
    pub agent: usize,
    /// Reward for the interval since the agent's previous question; 0 at its first question and at the end.
    pub reward: f64,
    /// State of the episode.
    pub status: EpisodeStatus,
    /// Figures of that interval, named by [`FIGURES`].
    pub figures: [f64; FIGURES.len()],
}

/// One run in virtual time that pauses whenever an agent has to decide.
#[derive(Debug)]
pub struct Episode {
    experiment: Experiment,
    session: Session,
    queue: Arc<DecisionQueue>,
    reward: Reward,
    agents: Vec<Agent>,
    /// Unanswered question of the agent that has to decide next; `None` after the end.
    question: Option<Question>,
    observation: Vec<f32>,
    last_step: Step,
}

/// Agent that decides for one flow, with the past that its rewards need.
#[derive(Debug)]
struct Agent {
    flow: u32,
    /// Index among all flows, in the order of ids.
    flow_index: usize,
    /// Time of the previous question, and the bytes that each flow had delivered by then.
    previous: Option<(Instant, Vec<Bytes>)>,
    recent_bps: Vec<f64>,
}

/// Factory of the agents' congestion controls, whose outputs come from the episode's caller.
#[derive(Debug)]
struct AgentControllers {
    card: Arc<Card>,
    queue: Arc<DecisionQueue>,
    flows: Vec<u32>,
}

impl ExternalPolicy for AgentControllers {
    fn controller(&self, flow: u32, setup: &Setup<'_>) -> Option<Result<Controller, CcError>> {
        self.flows.contains(&flow).then(|| {
            let decider = QueuedDecider::new(&self.card, &self.queue, flow);
            controller_decided_by(Box::new(decider), &self.card, setup)
        })
    }

    fn is_pending(&self) -> bool {
        self.queue.has_question()
    }
}

impl Episode {
    /// Begin an episode and run it up to the first question. `card` defines the agents' observations and actions.
    ///
    /// # Errors
    /// The experiment has no flow with an agent, or the simulator does not support it.
    pub fn begin(
        experiment: Experiment,
        card: &Arc<Card>,
        reward: Reward,
    ) -> Result<Self, GymError> {
        let agents: Vec<Agent> = (experiment.flows.iter().enumerate())
            .filter(|(_, flow)| flow.cc() == Some(POLICY_CC))
            .map(|(index, flow)| Agent::new(flow.id, index))
            .collect();
        if agents.is_empty() {
            return Err(GymError::NoAgent);
        }
        let queue = Arc::new(DecisionQueue::default());
        let flows = agents.iter().map(|agent| agent.flow).collect();
        let controllers =
            AgentControllers { card: Arc::clone(card), queue: Arc::clone(&queue), flows };
        let session = Session::new(&experiment, Arc::new(controllers))?;
        let mut episode = Self {
            experiment,
            session,
            queue,
            reward,
            agents,
            question: None,
            observation: vec![card.observation.filler; card.inputs()],
            last_step: Step {
                agent: 0,
                reward: 0.0,
                status: EpisodeStatus::Running,
                figures: [0.0; FIGURES.len()],
            },
        };
        episode.advance();
        Ok(episode)
    }

    /// Number of agents, including those whose flows have not begun.
    pub fn agents(&self) -> usize {
        self.agents.len()
    }

    /// Observation of the agent that is asked, as its network would get it; before the first question, all values are
    /// the card's filler.
    pub fn observation(&self) -> &[f32] {
        &self.observation
    }

    /// Current question: the agent that is asked, and the reward of its last interval.
    pub fn last_step(&self) -> &Step {
        &self.last_step
    }

    /// Bytes that each TCP flow has delivered to its receiver so far, in the order of ids.
    pub fn received(&self) -> impl Iterator<Item = Bytes> {
        self.session.received()
    }

    /// Answer with the output of a network and run up to the next question. After the end this is a no-op.
    pub fn step(&mut self, output: f64) -> &Step {
        if let Some(question) = self.question.take() {
            self.queue.answer(question.connection, output);
            self.advance();
        }
        &self.last_step
    }

    fn advance(&mut self) {
        let has_question = self.session.advance();
        let Some(question) = self.queue.next_question().filter(|_| has_question) else {
            let complete =
                self.agents.iter().all(|agent| self.session.is_complete(agent.flow_index));
            let status = if complete { EpisodeStatus::Complete } else { EpisodeStatus::TimeUp };
            self.last_step = Step { reward: 0.0, status, ..self.last_step };
            return;
        };
        let agent = self.agents.iter().position(|agent| agent.flow == question.flow);
        let agent = agent.expect("only agents ask questions");
        let (reward, figures) = self.settle_interval(agent, &question);
        self.last_step = Step { agent, reward, status: EpisodeStatus::Running, figures };
        self.observation.copy_from_slice(&question.observation);
        self.question = Some(question);
    }

    /// Compute the reward and the figures of the interval that this question ends.
    fn settle_interval(
        &mut self,
        agent: usize,
        question: &Question,
    ) -> (f64, [f64; FIGURES.len()]) {
        let now = question_time(question);
        let received: Vec<Bytes> = self.session.received().collect();
        let flows = &self.experiment.flows;
        let index = self.agents[agent].flow_index;
        let (link_bps, base_rtt_s) = route_rate_and_rtt(&self.experiment, &flows[index], now);
        let before = self.agents[agent].previous.replace((now, received.clone()));
        let (since, old) = before.as_ref().map_or_else(
            || (flows[index].start, vec![Bytes::ZERO; received.len()]),
            |(since, old)| (*since, old.clone()),
        );
        let interval_s = now.saturating_since(since).as_secs_f64().max(1e-6);
        let grown =
            |index: usize| (received[index] - old[index]).as_u64() as f64 * 8.0 / interval_s;
        let goodput_bps = grown(index);
        let (mut agents_bps, mut others_bps) = (Vec::new(), Vec::new());
        for (other, flow) in flows.iter().enumerate() {
            let is_sending = flow.start < now && flow.stop > since && flow.cc().is_some();
            if other == index || !is_sending || self.session.is_complete(other) {
                continue;
            }
            let is_agent = self.agents.iter().any(|agent| agent.flow_index == other);
            if is_agent { &mut agents_bps } else { &mut others_bps }.push(grown(other));
        }
        let agent = &mut self.agents[agent];
        agent.record_goodput(goodput_bps);
        let interval = Interval {
            reported: reported(question),
            at_s: now.saturating_since(Instant::START).as_secs_f64(),
            link_bps,
            base_rtt_s,
            goodput_bps,
            other_agents_bps: &agents_bps,
            non_agents_bps: &others_bps,
            recent_bps: &agent.recent_bps,
        };
        let reward = before.map_or(0.0, |_| (self.reward.compute)(&interval));
        (reward, interval.figures())
    }
}

impl Agent {
    fn new(flow: u32, flow_index: usize) -> Self {
        Self { flow, flow_index, previous: None, recent_bps: Vec::new() }
    }

    fn record_goodput(&mut self, goodput_bps: f64) {
        if self.recent_bps.len() == RECENT_INTERVALS {
            self.recent_bps.remove(0);
        }
        self.recent_bps.push(goodput_bps);
    }
}
