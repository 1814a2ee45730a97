/* The least a broker can do: read what a publisher sent, write it to its subscribers. Knows no MQTT beyond the
 * greetings of the load generator, keeps no state, filters nothing. What it costs is the kernel's part of every broker
 * that handles one message at a time.
 *
 * Usage: relay PORT [OTHER]. The first subscriber belongs to the first publisher and so on if there are as many of both;
 * otherwise every publisher's bytes go to all subscribers. With OTHER, the port of another relay, all that a client
 * says goes there, over a connection of its own: the least a pair of linked brokers can do.
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CONNECT = 0x10, SUBSCRIBE = 0x82, CLIENTS_MAX = 1024, READY_MAX = 256 };

static int subscribers[CLIENTS_MAX], client_count, publisher_count, subscriber_count;
static int number_of[65536], beyond[65536], other_port;
static char data[1 << 18];

static int put(int to, const char *bytes, long count) {
    while (count > 0) {
        long written = write(to, bytes, count);
        if (written < 0) return -1;
        bytes += written;
        count -= written;
    }
    return 0;
}

static void forward(int from, long count) {
    if (number_of[from] < 0) number_of[from] = publisher_count++;
    if (subscriber_count > 1 && client_count == 2 * subscriber_count) {
        put(subscribers[number_of[from] % subscriber_count], data, count);
        return;
    }
    for (int i = 0; i < subscriber_count; i++) put(subscribers[i], data, count);
}

static struct sockaddr_in loopback(int port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    return at;
}

static void hear(int poll, int from) {
    int one = 1;
    struct epoll_event wish = {.events = EPOLLIN, .data.fd = from};
    if (from < 0 || from >= 65536) exit(1);
    setsockopt(from, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    number_of[from] = -1;
    epoll_ctl(poll, EPOLL_CTL_ADD, from, &wish);
}

static void greet(int poll, int listener) {
    int client = accept(listener, NULL, NULL);
    hear(poll, client);
    if (other_port) {
        struct sockaddr_in at = loopback(other_port);
        int other = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(other, (struct sockaddr *)&at, sizeof at)) exit(1);
        hear(poll, other);
        beyond[client] = other;
        beyond[other] = client;
    }
}

static void serve(int client) {
    long count = read(client, data, sizeof data);
    if (count <= 0) {
        close(client);
    } else if (other_port) {
        put(beyond[client], data, count);
    } else if ((unsigned char)data[0] == CONNECT) {
        client_count++;
        put(client, "\x20\x02\0\0", 4);
    } else if ((unsigned char)data[0] == SUBSCRIBE) {
        char answer[] = {(char)0x90, 3, data[2], data[3], 0};
        subscribers[subscriber_count++ % CLIENTS_MAX] = client;
        put(client, answer, sizeof answer);
    } else {
        forward(client, count);
    }
}

int main(int count, char **words) {
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0), poll = epoll_create1(0);
    struct epoll_event ready[READY_MAX], wish = {.events = EPOLLIN, .data.fd = listener};
    if (count != 2 && count != 3) return 2;
    struct sockaddr_in at = loopback(atoi(words[1]));
    if (count == 3) other_port = atoi(words[2]);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, CLIENTS_MAX)) return 1;
    epoll_ctl(poll, EPOLL_CTL_ADD, listener, &wish);
    for (;;) {
        int some = epoll_wait(poll, ready, READY_MAX, -1);
        for (int i = 0; i < some; i++) {
            if (ready[i].data.fd == listener) greet(poll, listener);
            else serve(ready[i].data.fd);
        }
    }
}
