// Packets at constant rates over a network that stands still, in ns-3: one line of output for each packet's fate.
//
//   static_network DESCRIPTION order|transmissions|insertion
//
// The description has one item per line; rates are in bit/s, queues in packets, sizes in bytes on the wire:
//
//   laser A B DELAY_NS RATE QUEUE     link between two nodes, with a device at each end
//   air A RATE QUEUE                  device of a node into the air
//   sight A B DELAY_NS                way through the air between two nodes
//   route A DESTINATION B             next node, over a laser if there is one, or else through the air
//   flow NUMBER A B START_NS INTERVAL_NS SIZE COUNT
//
// B sends each packet of a flow back to A. Devices are PointToPointNetDevices with a DropTailQueue and no traffic
// control. The device into the air has a channel without delay to a node that stands for the air, from where packets
// take the delay of their own way. Nodes forward packets from device to device, without a stack of protocols.
//
// Events of a node in the same nanosecond: with "order", transmissions end first. Then packets arrive over lasers, by
// the number of the sender, then through the air, by the number of the sender, then flows send. With "transmissions",
// only transmissions end first; with "insertion", all events have the order in which ns-3's scheduler got them.
//
// Lines of output: "returned FLOW NUMBER SENT_NS RETURNED_NS", "lost FLOW NUMBER SENT_NS LOST_NS FROM TO" with the ends
// of the link (TO is -1 for the air), and at the end "run CPU_S ARRIVALS_AT_NODES".

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "ns3/drop-tail-queue.h"
#include "ns3/node.h"
#include "ns3/packet.h"
#include "ns3/point-to-point-channel.h"
#include "ns3/point-to-point-net-device.h"
#include "ns3/simulator.h"
#include "ns3/tag.h"

using namespace ns3;

namespace {

constexpr uint32_t PPP_HEADER_BYTES = 2;
constexpr uint16_t IPV4 = 0x0800;
constexpr long AIR = -1;

// Identity of a packet, which takes no room in it.
class Identity : public Tag {
  public:
    static TypeId GetTypeId() {
        static TypeId id = TypeId("skyhop::Identity").SetParent<Tag>().AddConstructor<Identity>();
        return id;
    }
    TypeId GetInstanceTypeId() const override { return GetTypeId(); }
    uint32_t GetSerializedSize() const override { return 9; }
    void Serialize(TagBuffer buffer) const override {
        buffer.WriteU32(flow);
        buffer.WriteU32(number);
        buffer.WriteU8(is_echo);
    }
    void Deserialize(TagBuffer buffer) override {
        flow = buffer.ReadU32();
        number = buffer.ReadU32();
        is_echo = buffer.ReadU8();
    }
    void Print(std::ostream& out) const override { out << flow << ' ' << number; }

    uint32_t flow = 0, number = 0;
    uint8_t is_echo = 0;
};

struct Flow {
    long client, server;
    uint64_t start_ns, interval_ns;
    uint32_t size, count;
};

struct Fate {
    Identity packet;
    int64_t at_ns;
    bool is_lost;
    long from, to;
};

struct Station;

// Direction of a link, with the device that sends into it.
struct Line {
    Station* from;
    Station* to;  // nullptr for the air
    Ptr<PointToPointNetDevice> device;
};

// A packet that arrives at a node, or that a flow sends there, and its place among those of the same nanosecond.
struct Due {
    int kind;
    long sender;
    Identity packet;

    std::tuple<int, long> place() const { return {kind, sender}; }
};
enum Kind { OVER_LASER, THROUGH_AIR, FROM_FLOW };

struct Station {
    long number;
    Ptr<Node> node;
    std::map<long, Line*> lasers;
    Line* air = nullptr;
    std::map<long, Time> sights;
    std::map<long, long> routes;
    std::vector<Due> due;
};

std::map<long, Station> stations;
std::map<uint32_t, Flow> flows;
std::vector<Fate> fates;
uint64_t arrivals = 0;
std::string order;

Station* station(long number) {
    Station& found = stations[number];
    if (!found.node) {
        found.number = number;
        found.node = CreateObject<Node>();
    }
    return &found;
}

long destination(const Identity& packet) {
    const Flow& flow = flows.at(packet.flow);
    return packet.is_echo ? flow.client : flow.server;
}

void forward(Station* at, const Identity& packet) {
    const long next = at->routes.at(destination(packet));
    const auto laser = at->lasers.find(next);
    Line* line = laser == at->lasers.end() ? at->air : laser->second;
    Ptr<Packet> sent = Create<Packet>(flows.at(packet.flow).size - PPP_HEADER_BYTES);
    sent->AddPacketTag(packet);
    if (!line->device->Send(sent, line->device->GetBroadcast(), IPV4)) {
        const long to = line->to ? line->to->number : AIR;
        fates.push_back({packet, Simulator::Now().GetNanoSeconds(), true, at->number, to});
    }
}

void process(Station* at, const Due& due) {
    Identity packet = due.packet;
    if (due.kind != FROM_FLOW) {
        ++arrivals;
        if (at->number == destination(packet)) {
            if (packet.is_echo) {
                fates.push_back({packet, Simulator::Now().GetNanoSeconds(), false, 0, 0});
                return;
            }
            packet.is_echo = 1;
        }
    }
    forward(at, packet);
}

// Process what is due at a node now; all other events of this nanosecond have been executed.
void process_all(Station* at) {
    std::vector<Due> due;
    due.swap(at->due);
    std::stable_sort(due.begin(), due.end(), [](const Due& a, const Due& b) { return a.place() < b.place(); });
    for (const Due& one : due) process(at, one);
}

void add(Station* at, const Due& due) {
    if (order == "insertion") return process(at, due);
    if (order == "transmissions") {
        Simulator::ScheduleNow(&process, at, due);
        return;
    }
    at->due.push_back(due);
    if (at->due.size() == 1) Simulator::ScheduleNow(&process_all, at);
}

void arrive_from_air(Station* at, long sender, Identity packet) {
    add(at, {THROUGH_AIR, sender, packet});
}

// Receive a packet at the far end of a line's channel.
bool receive(Line* line, Ptr<NetDevice>, Ptr<const Packet> received, uint16_t, const Address&) {
    Identity packet;
    received->PeekPacketTag(packet);
    if (line->to) {
        add(line->to, {OVER_LASER, line->from->number, packet});
        return true;
    }
    const long next = line->from->routes.at(destination(packet));
    Simulator::Schedule(line->from->sights.at(next), &arrive_from_air, station(next), line->from->number, packet);
    return true;
}

void send(uint32_t number, uint32_t sent) {
    const Flow& flow = flows.at(number);
    Identity packet;
    packet.flow = number;
    packet.number = sent;
    if (sent + 1 < flow.count) Simulator::Schedule(NanoSeconds(flow.interval_ns), &send, number, sent + 1);
    add(station(flow.client), {FROM_FLOW, 0, packet});
}

Ptr<PointToPointNetDevice> device(Ptr<Node> node, uint64_t rate_bps, uint32_t queue_packets) {
    auto made = CreateObject<PointToPointNetDevice>();
    made->SetDataRate(DataRate(rate_bps));
    auto queue = CreateObject<DropTailQueue<Packet>>();
    queue->SetMaxSize(QueueSize(QueueSizeUnit::PACKETS, queue_packets));
    made->SetQueue(queue);
    made->SetAddress(Mac48Address::Allocate());
    node->AddDevice(made);
    return made;
}

void join(Ptr<PointToPointNetDevice> one, Ptr<PointToPointNetDevice> other, uint64_t delay_ns) {
    auto channel = CreateObject<PointToPointChannel>();
    channel->SetAttribute("Delay", TimeValue(NanoSeconds(delay_ns)));
    one->Attach(channel);
    other->Attach(channel);
}

void add_laser(long a, long b, uint64_t delay_ns, uint64_t rate_bps, uint32_t queue_packets) {
    Line* there = new Line{station(a), station(b), device(station(a)->node, rate_bps, queue_packets)};
    Line* back = new Line{station(b), station(a), device(station(b)->node, rate_bps, queue_packets)};
    join(there->device, back->device, delay_ns);
    there->device->SetReceiveCallback(MakeBoundCallback(&receive, back));
    back->device->SetReceiveCallback(MakeBoundCallback(&receive, there));
    station(a)->lasers[b] = there;
    station(b)->lasers[a] = back;
}

void add_air(long a, uint64_t rate_bps, uint32_t queue_packets) {
    Line* line = new Line{station(a), nullptr, device(station(a)->node, rate_bps, queue_packets)};
    auto in_air = device(CreateObject<Node>(), rate_bps, 1);
    join(line->device, in_air, 0);
    in_air->SetReceiveCallback(MakeBoundCallback(&receive, line));
    station(a)->air = line;
}

// Read an item of the description.
bool read(std::istringstream& line) {
    std::string item;
    line >> item;
    long a, b, next;
    uint64_t delay_ns, rate_bps;
    uint32_t queue_packets, number;
    if (item == "laser" && line >> a >> b >> delay_ns >> rate_bps >> queue_packets) {
        add_laser(a, b, delay_ns, rate_bps, queue_packets);
    } else if (item == "air" && line >> a >> rate_bps >> queue_packets) {
        add_air(a, rate_bps, queue_packets);
    } else if (item == "sight" && line >> a >> b >> delay_ns) {
        station(a)->sights[b] = station(b)->sights[a] = NanoSeconds(delay_ns);
    } else if (item == "route" && line >> a >> b >> next) {
        station(a)->routes[b] = next;
    } else if (Flow flow; item == "flow" && line >> number >> flow.client >> flow.server >> flow.start_ns >>
                                               flow.interval_ns >> flow.size >> flow.count) {
        flows[number] = flow;
        Simulator::Schedule(NanoSeconds(flow.start_ns), &send, number, 0);
    } else {
        return false;
    }
    return true;
}

void write_fates(double cpu_s) {
    for (const Fate& fate : fates) {
        const Flow& flow = flows.at(fate.packet.flow);
        const uint64_t sent_ns = flow.start_ns + flow.interval_ns * fate.packet.number;
        std::printf("%s %u %u %llu %lld", fate.is_lost ? "lost" : "returned", fate.packet.flow, fate.packet.number,
                    static_cast<unsigned long long>(sent_ns), static_cast<long long>(fate.at_ns));
        if (fate.is_lost) std::printf(" %ld %ld", fate.from, fate.to);
        std::printf("\n");
    }
    std::printf("run %.6f %llu\n", cpu_s, static_cast<unsigned long long>(arrivals));
}

}  // namespace

int main(int count, char** arguments) {
    if (count != 3) {
        std::cerr << "usage: static_network DESCRIPTION order|transmissions|insertion\n";
        return 2;
    }
    order = arguments[2];
    std::ifstream description(arguments[1]);
    for (std::string text; std::getline(description, text);) {
        std::istringstream line(text);
        if (!read(line)) {
            std::cerr << arguments[1] << ": not an item: " << text << "\n";
            return 2;
        }
    }
    const std::clock_t begin = std::clock();
    Simulator::Run();
    write_fates(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
    return 0;
}
