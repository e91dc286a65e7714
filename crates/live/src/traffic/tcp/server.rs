//! Server end of a TCP flow: one application per connection; connections may overlap.

use std::io::ErrorKind;
use std::net::{SocketAddrV4, TcpListener};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::socket::{self, Backlog, SockaddrIn};
use skyhop_app::{Action, AppKind as _, Application, Event, Side};
use skyhop_host::clock::minimize_timer_slack;
use skyhop_host::error::{Context, HostError};
use skyhop_units::Instant;

use super::connection::{Connection, Zeros};
use super::{Flow, TcpPlan, options};

/// Open a listening socket for the flow in the calling thread's network namespace.
pub(super) fn listen(plan: &TcpPlan, address: SocketAddrV4) -> Result<TcpListener, HostError> {
    let socket = options::open(plan, Side::Server)?;
    socket::bind(socket.as_raw_fd(), &SockaddrIn::from(address))
        .and_then(|()| socket::listen(&socket, Backlog::MAXCONN))
        .context("cannot bind a flow's listening socket")?;
    Ok(TcpListener::from(socket))
}

/// Run the applications of all accepted connections until the flow's end.
pub(super) fn run(flow: &Flow) -> Result<(), HostError> {
    minimize_timer_slack()?;
    let mut server = Server { flow, served: Vec::new(), zeros: Zeros::default() };
    loop {
        server.accept()?;
        let now = flow.now();
        if flow.is_over(now) {
            break;
        }
        let until = server.poll(now)?;
        let pending = (flow.listener.as_fd(), PollFlags::POLLIN);
        let connections = server.served.iter().filter_map(|one| one.connection.poll_events(now));
        flow.wait(until, connections.chain([pending]))?;
    }
    let connections = server.served.into_iter().map(|one| one.connection).collect();
    flow.finish(Side::Server, connections, None)
}

struct Server<'f> {
    flow: &'f Flow,
    served: Vec<Served>,
    zeros: Zeros,
}

/// Accepted connection with its application.
struct Served {
    connection: Connection,
    app: Box<dyn Application>,
}

impl Server<'_> {
    /// Accept all pending connections.
    fn accept(&mut self) -> Result<(), HostError> {
        loop {
            match self.flow.listener.accept() {
                Ok((accepted, from)) => {
                    accepted.set_nonblocking(true).context("cannot set up a flow's connection")?;
                    self.serve(accepted.into(), from.port())?;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(error) => return Err(error).context("cannot accept a flow's connection"),
            }
        }
    }

    fn serve(&mut self, socket: OwnedFd, port: u16) -> Result<(), HostError> {
        let flow = self.flow;
        // A connection without a number is not from this flow's client.
        let Some(number) = flow.number_of(port) else { return Ok(()) };
        options::batch_reads(&flow.plan, Side::Server, &socket)?;
        let connection = Connection::established(Arc::new(socket), flow.reader(Side::Server));
        flow.view.opened(Side::Server, &connection);
        self.served.push(Served { connection, app: flow.plan.app.server(&flow.facts(), number) });
        Ok(())
    }

    /// Poll each connection and its application; return the time at which to poll again.
    fn poll(&mut self, now: Instant) -> Result<Instant, HostError> {
        let (mut until, mut index) = (Instant::NEVER, 0);
        while let Some(one) = self.served.get_mut(index) {
            let next = one.poll(now, &self.zeros);
            self.flow.collect(now, &mut *one.app)?;
            if let Some(next) = next {
                until = until.min(next);
                index += 1;
            } else {
                let gone = self.served.remove(index);
                gone.connection.deliver_when_closed()?;
                self.flow.view.closed(Side::Server, &gone.connection)?;
            }
        }
        Ok(until)
    }
}

impl Served {
    /// Execute the application's actions; return the time of the next poll, or `None` if the connection is over or lost.
    fn poll(&mut self, now: Instant, zeros: &Zeros) -> Option<Instant> {
        let done = self.poll_application(now).and_then(|until| {
            self.connection.write(zeros)?;
            Ok(until)
        });
        match done {
            Ok(until) if self.is_over(until) => None,
            Ok(until) => Some(until.min(self.connection.next(now))),
            Err(_) => {
                self.app.on_event(now, Event::Lost);
                None
            }
        }
    }

    fn poll_application(&mut self, now: Instant) -> Result<Instant, Errno> {
        let event = self.connection.poll(now)?;
        event.into_iter().for_each(|event| self.app.on_event(now, event));
        loop {
            match self.app.poll(now) {
                Action::Wait(until) => return Ok(until),
                action => self.connection.apply(action),
            }
        }
    }

    /// Whether neither end has more to send.
    fn is_over(&self, until: Instant) -> bool {
        let sends_no_more = until == Instant::NEVER && !self.connection.has_unwritten();
        let has_all = self.connection.stream_length().is_some();
        self.connection.is_over() || (has_all && sends_no_more)
    }
}
