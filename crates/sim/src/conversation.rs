//! A flow over TCP: its application's two ends, and the connections between them.

use skyhop_app::{
    Action, App, Application, Event, FlowFacts, Kind as _, Reader, Side, TcpOptions, Transaction,
};
use skyhop_cc::{Controller, Handover, Outputs, Phase};
use skyhop_model::{BufferSizes, mss};
use skyhop_tcp::{
    ConnectionState, Endpoint, EndpointConfig, HostConfig, Packet, ReceiverConfig, SenderConfig,
    TcpInfo,
};
use skyhop_units::{Bytes, Duration, Instant};

use crate::controllers::Controllers;
use crate::departure::Departure;

/// Both ends of a flow over TCP.
pub(crate) struct Conversation {
    app: App,
    /// Which end sends most.
    sends: Side,
    facts: FlowFacts,
    config: EndpointConfig,
    controllers: Controllers,
    client: Acting,
    /// Those that are not over; the client's application knows of the last alone, and of those that it opened beside others.
    connections: Vec<Connection>,
    /// The number of the next one that takes the place of the former.
    opened: u32,
    /// That which the client's application has turned to, of several.
    turned: Option<u32>,
    /// Of connections that are over.
    past: Counted,
    handover: Option<Handover>,
    pub(crate) started: bool,
    /// When it stopped, and was forgotten.
    pub(crate) stopped: Option<Instant>,
    completed: Option<Instant>,
    results: Vec<Transaction>,
}

/// One end of the application, and when it wants to be asked again.
struct Acting {
    app: Box<dyn Application>,
    wait: Instant,
}

/// One connection.
struct Connection {
    number: u32,
    /// Whether it is one of several.
    is_beside: bool,
    server: Acting,
    ends: [End; 2],
}

/// One end of a connection.
struct End {
    endpoint: Endpoint<Controller>,
    reader: Reader,
    /// What its application has been told.
    connected: bool,
    received: Bytes,
    /// It wants to hear of more once so much has been read.
    tell_at: Bytes,
    finished: bool,
    /// The application knows, or has itself seen to it, that the connection is over.
    over: bool,
}

/// What is counted over all connections, of the direction in which the application sends most.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counted {
    pub(crate) received: Bytes,
    pub(crate) retransmits: u64,
    pub(crate) sent: u64,
    pub(crate) marks: u64,
    /// What whoever decides for the congestion control has said.
    pub(crate) outputs: Outputs,
}

impl Conversation {
    pub(crate) fn new(
        app: &App,
        options: TcpOptions,
        controllers: Controllers,
        facts: FlowFacts,
    ) -> Self {
        Self {
            client: Acting { app: app.client(&facts), wait: facts.start },
            app: app.clone(),
            sends: app.sends(),
            facts,
            config: endpoint_config(app, options),
            controllers,
            connections: Vec::with_capacity(1),
            opened: 0,
            turned: None,
            past: Counted::default(),
            handover: None,
            started: false,
            stopped: None,
            completed: None,
            results: Vec::new(),
        }
    }

    /// A packet has arrived at an end of a connection.
    #[inline]
    pub(crate) fn on_packet(&mut self, side: Side, number: u32, now: Instant, packet: &Packet) {
        let Some(index) = self.connections.iter().position(|one| one.number == number) else {
            return;
        };
        let end = &mut self.connections[index].ends[side as usize];
        end.endpoint.on_packet(now, packet);
        if end.is_told_of(packet) && self.tell(side, index, now) {
            self.act(side, index, now);
        }
    }

    /// Time has passed at an end.
    pub(crate) fn on_timer(&mut self, side: Side, now: Instant) {
        self.started = true;
        let mut index = 0;
        while index < self.connections.len() {
            let end = &mut self.connections[index].ends[side as usize];
            end.endpoint.on_timer(now);
            let told = self.tell(side, index, now);
            if told || self.acting(side, index).wait <= now {
                self.act(side, index, now);
            }
            index += 1;
        }
        if side == Side::Client && self.client.wait <= now {
            self.act(side, index, now);
        }
        self.forget_what_is_over(now);
    }

    /// Sends every packet that leaves an end now.
    #[inline(always)]
    pub(crate) fn transmit(&mut self, side: Side, now: Instant, departure: &mut Departure<'_>) {
        for connection in &mut self.connections {
            departure.connection = connection.number;
            connection.ends[side as usize].endpoint.transmit(now, departure);
        }
    }

    /// Whether an end may have something to send.
    #[inline]
    pub(crate) fn may_send(&self, side: Side) -> bool {
        self.connections.iter().any(|connection| connection.ends[side as usize].endpoint.may_send())
    }

    /// When an end wants [`Self::on_timer`] to be called.
    #[inline(always)]
    pub(crate) fn next_timer(&self, side: Side) -> Instant {
        let own = if side == Side::Client { self.client.wait } else { Instant::NEVER };
        let mut next = own;
        for connection in &self.connections {
            let end = &connection.ends[side as usize];
            next = next.min(end.endpoint.next_timer().unwrap_or(Instant::NEVER));
            if !end.reader.is_fast() {
                let reads = end.reader.next(end.endpoint.unread());
                next = reads.map_or(next, |reads| reads.min(next));
            }
            if side == Side::Server {
                next = next.min(connection.server.wait);
            }
        }
        next
    }

    /// A handover is announced to the end of its connections that sends most, also of those to come.
    pub(crate) fn announce(&mut self, handover: Handover) {
        self.handover = Some(handover);
        self.sending().for_each(|controller| controller.announce(handover));
    }

    /// Whether the congestion controls at `side` have done anything about handovers since [`Self::take_phases`].
    #[inline]
    pub(crate) fn has_phases(&mut self, side: Side) -> bool {
        side == self.sends && self.sending().any(|controller| controller.has_phases())
    }

    /// What those at the end that sends most have done about them.
    pub(crate) fn take_phases(&mut self) -> Vec<Phase> {
        self.sending().flat_map(|controller| controller.take_phases()).collect()
    }

    fn sending(&mut self) -> impl Iterator<Item = &mut Controller> {
        let side = self.sends as usize;
        let ends = self.connections.iter_mut().map(move |connection| &mut connection.ends[side]);
        ends.map(|end| end.endpoint.sender_mut().congestion_control())
    }

    /// What the application has completed, or failed to.
    pub(crate) fn take_results(&mut self, now: Instant) -> Vec<Transaction> {
        let mut results = std::mem::take(&mut self.results);
        results.extend(self.client.app.take_results(now));
        for connection in &mut self.connections {
            results.extend(connection.server.app.take_results(now));
        }
        results
    }

    /// The sender of the direction in which most is sent; `None` while there is no connection.
    pub(crate) fn info(&self) -> Option<TcpInfo> {
        let last = self.connections.last()?;
        Some(last.ends[self.sends as usize].endpoint.sender().info())
    }

    /// What has been counted in that direction.
    pub(crate) fn counted(&self) -> Counted {
        self.connections
            .iter()
            .fold(self.past, |sum, connection| sum.plus(connection.counted(self.sends)))
    }

    /// How much a finite transfer is about, and when the last of it had arrived.
    pub(crate) fn completed(&self) -> Option<(Bytes, Instant)> {
        let by_server = |connection: &Connection| connection.server.app.completed();
        let completed = self.completed.or_else(|| self.connections.iter().find_map(by_server));
        Some((self.app.bytes()?, completed?))
    }

    /// The application's end that acts for an end of a connection.
    fn acting(&mut self, side: Side, index: usize) -> &mut Acting {
        match side {
            Side::Client => &mut self.client,
            Side::Server => &mut self.connections[index].server,
        }
    }

    /// Tells the application what has happened at an end; whether anything has.
    fn tell(&mut self, side: Side, index: usize, now: Instant) -> bool {
        let is_last = index + 1 == self.connections.len();
        let connection = &mut self.connections[index];
        let end = &mut connection.ends[side as usize];
        let app = match side {
            // It has turned to another connection.
            Side::Client if !is_last && !connection.is_beside => return false,
            Side::Client => &mut self.client.app,
            Side::Server => &mut connection.server.app,
        };
        let mut told = false;
        while let Some(event) = end.next_event(now) {
            app.on_event_of(now, connection.number, event);
            told = true;
        }
        told
    }

    /// Does what the application does now at an end.
    fn act(&mut self, side: Side, index: usize, now: Instant) {
        loop {
            let acting = self.acting(side, index);
            let action = acting.app.poll(now);
            match action {
                Action::Connect => {
                    self.connect(self.opened, false);
                    self.opened += 1;
                    continue;
                }
                Action::Open(number) => {
                    self.connect(number, true);
                    self.turned = Some(number);
                    continue;
                }
                Action::Turn(number) => {
                    self.turned = Some(number);
                    continue;
                }
                _ => {}
            }
            let low_water = acting.app.low_water();
            if let Action::Wait(until) = action {
                acting.wait = until;
            }
            let index = if side == Side::Client { self.turned_to() } else { index };
            if let Some(connection) = self.connections.get_mut(index) {
                connection.ends[side as usize].act(now, action, low_water);
            }
            if matches!(action, Action::Wait(_)) {
                break;
            }
        }
    }

    /// The connection that the client's application acts for: its last, once it has one, or that which it has turned to.
    fn turned_to(&self) -> usize {
        match self.turned {
            None => self.connections.len().saturating_sub(1),
            Some(number) => {
                let found = self.connections.iter().position(|one| one.number == number);
                found.unwrap_or(self.connections.len())
            }
        }
    }

    fn connect(&mut self, number: u32, is_beside: bool) {
        let ends = [Side::Client, Side::Server].map(|side| self.end(number, side));
        let server = Acting { app: self.app.server(&self.facts, number), wait: Instant::NEVER };
        self.connections.push(Connection { number, is_beside, server, ends });
    }

    /// An end of a new connection.
    fn end(&mut self, number: u32, side: Side) -> End {
        let reader = Reader::new(self.app.read_rate().filter(|_| side != self.sends));
        let mut config = self.config;
        config.receiver.reads_at_once = reader.is_fast();
        let mut controller = self.controllers.make(number, side);
        if let Some(handover) = self.handover.filter(|_| side == self.sends) {
            controller.announce(handover);
        }
        let endpoint = match side {
            Side::Client => Endpoint::client(config, controller),
            Side::Server => Endpoint::server(config, controller),
        };
        End {
            endpoint,
            reader,
            connected: false,
            received: Bytes::ZERO,
            tell_at: Bytes::new(1),
            finished: false,
            over: false,
        }
    }

    /// Keeps the counts of connections that are over at both ends, and forgets the rest of them.
    fn forget_what_is_over(&mut self, now: Instant) {
        let last = self.connections.last().map(|connection| connection.number);
        let is_kept =
            |connection: &Connection| Some(connection.number) == last || !connection.is_over();
        if self.connections.iter().all(is_kept) {
            return;
        }
        let (kept, over) = self.connections.drain(..).partition(is_kept);
        self.connections = kept;
        let over: Vec<Connection> = over;
        for mut connection in over {
            self.past = self.past.plus(connection.counted(self.sends));
            self.results.extend(connection.server.app.take_results(now));
            self.completed = self.completed.or(connection.server.app.completed());
        }
    }
}

impl Connection {
    fn is_over(&self) -> bool {
        let is_over = |end: &End| {
            matches!(end.endpoint.state(), ConnectionState::Closed | ConnectionState::Failed(_))
        };
        self.ends.iter().all(is_over)
    }

    fn counted(&self, sends: Side) -> Counted {
        let [sender, receiver] = [sends, sends.other()].map(|side| &self.ends[side as usize]);
        let info = sender.endpoint.sender().info();
        Counted {
            received: receiver.endpoint.received(),
            retransmits: info.retransmits,
            sent: info.sent,
            marks: info.delivered_ce,
            outputs: sender.endpoint.sender().outputs(),
        }
    }
}

impl Counted {
    fn plus(self, other: Self) -> Self {
        Self {
            received: self.received + other.received,
            retransmits: self.retransmits + other.retransmits,
            sent: self.sent + other.sent,
            marks: self.marks + other.marks,
            outputs: self.outputs.plus(other.outputs),
        }
    }
}

impl End {
    /// Whether its application may have to hear of what this packet did. An acknowledgement is nothing that it hears of
    /// once it is connected.
    #[inline]
    fn is_told_of(&self, packet: &Packet) -> bool {
        let endpoint = &self.endpoint;
        match packet {
            _ if !self.connected => true,
            Packet::Ack(_) => false,
            Packet::Reset => true,
            Packet::Segment(_) | Packet::Both(..) => {
                endpoint.received() >= self.tell_at
                    || endpoint.peer_finished()
                    || !self.reader.is_fast()
            }
        }
    }

    /// What its application has to hear of next.
    #[inline]
    fn next_event(&mut self, now: Instant) -> Option<Event> {
        if self.over {
            return None;
        }
        let state = self.endpoint.state();
        if matches!(state, ConnectionState::Failed(_)) {
            self.over = true;
            return Some(Event::Lost);
        }
        if !self.connected && state != ConnectionState::Opening {
            self.connected = true;
            return Some(Event::Connected);
        }
        if !self.reader.is_fast() {
            let taken = self.reader.take(now, self.endpoint.unread());
            if taken > Bytes::ZERO {
                self.endpoint.read(now, taken);
            }
        }
        let read = self.endpoint.received() - self.endpoint.unread();
        let is_at_the_end = self.endpoint.peer_finished() && read == self.endpoint.received();
        if read >= self.tell_at || (is_at_the_end && read > self.received) {
            let more = read - self.received;
            self.received = read;
            self.tell_at = read + Bytes::new(1);
            return Some(Event::Received(more));
        }
        if is_at_the_end && !self.finished {
            self.finished = true;
            return Some(Event::PeerFinished);
        }
        None
    }

    /// Does it; afterwards the application wants to hear once `low_water` more has been read.
    fn act(&mut self, now: Instant, action: Action, low_water: Bytes) {
        let tell_at = self.received.as_u64().saturating_add(low_water.as_u64());
        self.tell_at = Bytes::new(tell_at);
        match action {
            Action::Write(bytes) => self.endpoint.write(now, bytes),
            Action::WriteWithoutEnd => self.endpoint.write_without_end(),
            Action::Pause => self.endpoint.pause(),
            Action::Finish => self.endpoint.finish(),
            Action::Abort => {
                self.over = true;
                self.endpoint.abort();
            }
            Action::Connect
            | Action::Open(_)
            | Action::Turn(_)
            | Action::Send(_)
            | Action::Wait(_) => {}
        }
    }
}

/// How both ends of an application's connections are set up.
fn endpoint_config(app: &App, options: TcpOptions) -> EndpointConfig {
    let TcpOptions { profile, timer_wheel, timestamps, sack, .. } = options;
    let jiffy = Duration::from_nanos(1_000_000_000 / u64::from(options.hz));
    let host = HostConfig { profile, mss: mss(timestamps), jiffy, timer_wheel, timestamps, sack };
    // Linux doubles what is asked for (`sk_setsockopt`).
    let fixed = options.receive_buffer.map(|buffer| buffer + buffer);
    EndpointConfig {
        sender: SenderConfig {
            host,
            initial_cwnd: options.initial_cwnd,
            wmem: options.wmem,
            nodelay: options.nodelay,
            cork: options.cork,
            ecn: options.ecn,
            // A transfer for which nobody waits goes on when the path is back.
            gives_up: app.table().is_some(),
            ..SenderConfig::default()
        },
        receiver: ReceiverConfig {
            host,
            rmem: fixed.map_or(options.rmem, |size| BufferSizes { initial: size, max: size }),
            auto_tuning: fixed.is_none(),
            ..ReceiverConfig::default()
        },
        keepalive: options.keepalive,
    }
}
