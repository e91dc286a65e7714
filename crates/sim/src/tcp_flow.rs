//! TCP flow: the two ends of its application, and the connections between them.

use skyhop_app::{
    Action, App, AppKind as _, Application, Event, FlowFacts, Reader, Side, TcpOptions, Transaction,
};
use skyhop_cc::{Controller, Handover, OutputCounts, Phase};
use skyhop_model::{BufferSizes, mss};
use skyhop_record::AckRtts;
use skyhop_tcp::{
    ConnectionState, Endpoint, EndpointConfig, HostConfig, Packet, ReceiverConfig, SenderConfig,
    TcpInfo,
};
use skyhop_units::{Bytes, Duration, Instant};

use crate::ack_timer::AckTimer;
use crate::controllers::Controllers;
use crate::departure::Departs;

/// Both ends of a TCP flow: application, connections and counters.
pub(crate) struct TcpFlow {
    app: App,
    /// End that sends most of the data.
    sends: Side,
    facts: FlowFacts,
    config: EndpointConfig,
    controllers: Controllers,
    client: AppEnd,
    /// Connections that are not closed at both ends. Actions of the client's application refer to the last one, or to
    /// one of those that it opened in parallel (`current`).
    connections: Vec<Connection>,
    /// Number of the next connection that replaces the previous one.
    next_number: u32,
    /// Connection that subsequent client actions refer to, if the application has several in parallel.
    current: Option<u32>,
    /// Counters of closed connections.
    past: Counters,
    handover: Option<Handover>,
    pub(crate) started: bool,
    /// Time at which the flow stopped; packets that arrive later are ignored.
    pub(crate) stopped: Option<Instant>,
    completed: Option<Instant>,
    results: Vec<Transaction>,
}

/// One end of an application, and the time at which it wants to be polled again.
struct AppEnd {
    app: Box<dyn Application>,
    wait: Instant,
}

/// A connection between the two ends, with the server's application.
struct Connection {
    number: u32,
    /// Whether it is one of several parallel connections.
    is_parallel: bool,
    server: AppEnd,
    ends: [End; 2],
    /// Timer of the acknowledgements that the end with most data receives.
    ack_timer: AckTimer,
}

/// One end of a connection, with the events that its application has been notified of.
struct End {
    endpoint: Endpoint<Controller>,
    reader: Reader,
    /// Whether the application has been notified that the connection is established.
    connected: bool,
    received: Bytes,
    /// Number of bytes read at which the application wants to be notified next.
    notify_at: Bytes,
    finished: bool,
    /// Whether the application has been notified that the connection is over, or has aborted it itself.
    over: bool,
}

/// Counters over all connections of the flow, in the direction in which the application sends most.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counters {
    pub(crate) received: Bytes,
    pub(crate) retransmits: u64,
    pub(crate) sent: u64,
    pub(crate) marks: u64,
    pub(crate) ack_rtts: AckRtts,
    /// Counters of the external policy's decisions for the congestion control.
    pub(crate) outputs: OutputCounts,
}

impl TcpFlow {
    pub(crate) fn new(
        app: &App,
        options: TcpOptions,
        controllers: Controllers,
        facts: FlowFacts,
    ) -> Self {
        Self {
            client: AppEnd { app: app.client(&facts), wait: facts.start },
            app: app.clone(),
            sends: app.sends(),
            facts,
            config: endpoint_config(app, options),
            controllers,
            connections: Vec::with_capacity(1),
            next_number: 0,
            current: None,
            past: Counters::default(),
            handover: None,
            started: false,
            stopped: None,
            completed: None,
            results: Vec::new(),
        }
    }

    /// Process a packet that has arrived at one end of a connection.
    #[inline]
    pub(crate) fn on_packet(&mut self, side: Side, number: u32, now: Instant, packet: &Packet) {
        let Some(index) = self.connections.iter().position(|one| one.number == number) else {
            return;
        };
        let connection = &mut self.connections[index];
        let end = &mut connection.ends[side as usize];
        end.endpoint.on_packet(now, packet);
        if side == self.sends {
            connection.ack_timer.update(end.endpoint.sender().outstanding(), now);
        }
        if end.may_cause_event(packet) && self.notify(side, index, now) {
            self.act(side, index, now);
        }
    }

    /// Process timers of one end that are due.
    pub(crate) fn on_timer(&mut self, side: Side, now: Instant) {
        self.started = true;
        let mut index = 0;
        while index < self.connections.len() {
            let end = &mut self.connections[index].ends[side as usize];
            end.endpoint.on_timer(now);
            let notified = self.notify(side, index, now);
            if notified || self.app_end(side, index).wait <= now {
                self.act(side, index, now);
            }
            index += 1;
        }
        if side == Side::Client && self.client.wait <= now {
            self.act(side, index, now);
        }
        self.remove_closed(now);
    }

    /// Send every packet that may leave an end now.
    #[inline(always)]
    pub(crate) fn transmit(&mut self, side: Side, now: Instant, departure: &mut impl Departs) {
        for connection in &mut self.connections {
            departure.set_connection(connection.number);
            let endpoint = &mut connection.ends[side as usize].endpoint;
            endpoint.transmit(now, departure);
            if side == self.sends {
                connection.ack_timer.update(endpoint.sender().outstanding(), now);
            }
        }
    }

    /// Whether an end may have packets to send.
    #[inline]
    pub(crate) fn may_send(&self, side: Side) -> bool {
        self.connections.iter().any(|connection| connection.ends[side as usize].endpoint.may_send())
    }

    /// Time of the next [`Self::on_timer`] call that an end needs.
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

    /// Announce a handover to the congestion controls of the end that sends most, including those of later
    /// connections.
    pub(crate) fn announce(&mut self, handover: Handover) {
        self.handover = Some(handover);
        self.sending().for_each(|controller| controller.announce(handover));
    }

    /// Whether the congestion controls at `side` have reacted to handovers since [`Self::take_phases`].
    #[inline]
    pub(crate) fn has_phases(&mut self, side: Side) -> bool {
        side == self.sends && self.sending().any(|controller| controller.has_phases())
    }

    /// Return the reactions of the sending end's congestion controls since the last call.
    pub(crate) fn take_phases(&mut self) -> Vec<Phase> {
        self.sending().flat_map(|controller| controller.take_phases()).collect()
    }

    fn sending(&mut self) -> impl Iterator<Item = &mut Controller> {
        let side = self.sends as usize;
        let ends = self.connections.iter_mut().map(move |connection| &mut connection.ends[side]);
        ends.map(|end| end.endpoint.sender_mut().congestion_control())
    }

    /// Return the transactions that the application has completed or failed since the last call.
    pub(crate) fn take_results(&mut self, now: Instant) -> Vec<Transaction> {
        let mut results = std::mem::take(&mut self.results);
        results.extend(self.client.app.take_results(now));
        for connection in &mut self.connections {
            results.extend(connection.server.app.take_results(now));
        }
        results
    }

    /// State of the TCP sender in the direction of most data; `None` while there is no connection.
    pub(crate) fn info(&self) -> Option<TcpInfo> {
        let last = self.connections.last()?;
        Some(last.ends[self.sends as usize].endpoint.sender().info())
    }

    /// Counters in the direction of most data, over all connections.
    pub(crate) fn counters(&self) -> Counters {
        self.connections
            .iter()
            .fold(self.past, |sum, connection| sum.plus(connection.counters(self.sends)))
    }

    /// Size of a finite transfer, and the time at which all of it had arrived.
    pub(crate) fn completed(&self) -> Option<(Bytes, Instant)> {
        let by_server = |connection: &Connection| connection.server.app.completed();
        let completed = self.completed.or_else(|| self.connections.iter().find_map(by_server));
        Some((self.app.bytes()?, completed?))
    }

    /// End of the application that handles an end of a connection.
    fn app_end(&mut self, side: Side, index: usize) -> &mut AppEnd {
        match side {
            Side::Client => &mut self.client,
            Side::Server => &mut self.connections[index].server,
        }
    }

    /// Notify the application of the events at an end of a connection; return whether there were any.
    fn notify(&mut self, side: Side, index: usize, now: Instant) -> bool {
        let is_last = index + 1 == self.connections.len();
        let connection = &mut self.connections[index];
        let end = &mut connection.ends[side as usize];
        let app = match side {
            // The client has replaced this connection by a later one.
            Side::Client if !is_last && !connection.is_parallel => return false,
            Side::Client => &mut self.client.app,
            Side::Server => &mut connection.server.app,
        };
        let mut notified = false;
        while let Some(event) = end.next_event(now) {
            app.on_connection_event(now, connection.number, event);
            notified = true;
        }
        notified
    }

    /// Poll the application at an end and execute its actions until it waits.
    fn act(&mut self, side: Side, index: usize, now: Instant) {
        loop {
            let app_end = self.app_end(side, index);
            let action = app_end.app.poll(now);
            match action {
                Action::Connect => {
                    self.connect(self.next_number, false);
                    self.next_number += 1;
                    continue;
                }
                Action::Open(number) => {
                    self.connect(number, true);
                    self.current = Some(number);
                    continue;
                }
                Action::Select(number) => {
                    self.current = Some(number);
                    continue;
                }
                _ => {}
            }
            let low_water = app_end.app.low_water();
            if let Action::Wait(until) = action {
                app_end.wait = until;
            }
            let index = if side == Side::Client { self.current_index() } else { index };
            if let Some(connection) = self.connections.get_mut(index) {
                connection.ends[side as usize].act(now, action, low_water);
            }
            if matches!(action, Action::Wait(_)) {
                break;
            }
        }
    }

    /// Index of the connection that client actions refer to: the current one of several parallel connections,
    /// otherwise the last connection.
    fn current_index(&self) -> usize {
        match self.current {
            None => self.connections.len().saturating_sub(1),
            Some(number) => {
                let found = self.connections.iter().position(|one| one.number == number);
                found.unwrap_or(self.connections.len())
            }
        }
    }

    fn connect(&mut self, number: u32, is_parallel: bool) {
        let ends = [Side::Client, Side::Server].map(|side| self.end(number, side));
        let server = AppEnd { app: self.app.server(&self.facts, number), wait: Instant::NEVER };
        let ack_timer = AckTimer::default();
        self.connections.push(Connection { number, is_parallel, server, ends, ack_timer });
    }

    /// Create one end of a new connection.
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
            notify_at: Bytes::new(1),
            finished: false,
            over: false,
        }
    }

    /// Remove connections that are closed at both ends, and keep their counters and results.
    fn remove_closed(&mut self, now: Instant) {
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
            self.past = self.past.plus(connection.counters(self.sends));
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

    fn counters(&self, sends: Side) -> Counters {
        let [sender, receiver] = [sends, sends.other()].map(|side| &self.ends[side as usize]);
        let info = sender.endpoint.sender().info();
        Counters {
            received: receiver.endpoint.received(),
            retransmits: info.retransmits,
            sent: info.sent,
            marks: info.delivered_ce,
            ack_rtts: self.ack_timer.total(),
            outputs: sender.endpoint.sender().outputs(),
        }
    }
}

impl Counters {
    fn plus(self, other: Self) -> Self {
        Self {
            received: self.received + other.received,
            retransmits: self.retransmits + other.retransmits,
            sent: self.sent + other.sent,
            marks: self.marks + other.marks,
            ack_rtts: self.ack_rtts.plus(other.ack_rtts),
            outputs: self.outputs.plus(other.outputs),
        }
    }
}

impl End {
    /// Whether a packet may have caused an event for the application. An acknowledgement causes none once the
    /// connection is established.
    #[inline]
    fn may_cause_event(&self, packet: &Packet) -> bool {
        let endpoint = &self.endpoint;
        match packet {
            _ if !self.connected => true,
            Packet::Ack(_) => false,
            Packet::Reset => true,
            Packet::Segment(_) | Packet::DataWithAck(..) => {
                endpoint.received() >= self.notify_at
                    || endpoint.peer_finished()
                    || !self.reader.is_fast()
            }
        }
    }

    /// Next event that the application has to be notified of.
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
        if read >= self.notify_at || (is_at_the_end && read > self.received) {
            let more = read - self.received;
            self.received = read;
            self.notify_at = read + Bytes::new(1);
            return Some(Event::Received(more));
        }
        if is_at_the_end && !self.finished {
            self.finished = true;
            return Some(Event::PeerFinished);
        }
        None
    }

    /// Execute an action; afterwards notify the application once `low_water` more bytes have been read.
    fn act(&mut self, now: Instant, action: Action, low_water: Bytes) {
        let notify_at = self.received.as_u64().saturating_add(low_water.as_u64());
        self.notify_at = Bytes::new(notify_at);
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
            | Action::Select(_)
            | Action::Send(_)
            | Action::Wait(_) => {}
        }
    }
}

/// Configuration of both ends of an application's connections.
fn endpoint_config(app: &App, options: TcpOptions) -> EndpointConfig {
    let TcpOptions { profile, timer_wheel, timestamps, sack, .. } = options;
    let jiffy = Duration::from_nanos(1_000_000_000 / u64::from(options.hz));
    let host = HostConfig { profile, mss: mss(timestamps), jiffy, timer_wheel, timestamps, sack };
    // Linux doubles the size that setsockopt asks for (`sk_setsockopt`).
    let fixed = options.receive_buffer.map(|buffer| buffer + buffer);
    EndpointConfig {
        sender: SenderConfig {
            host,
            initial_cwnd: options.initial_cwnd,
            wmem: options.wmem,
            nodelay: options.nodelay,
            cork: options.cork,
            ecn: options.ecn,
            // Only an application with a table of results gives up; any other transfer continues when the path
            // is back.
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
