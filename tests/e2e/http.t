#!/bin/bash
# The HTTP engine against real clients: curl and openssl. Needs http-try.
top=$(cd "$(dirname "$0")/../.." && pwd)
try=${BUREAU_BUILD:-$top/build}/src/http/http-try
[ -x "$try" ] || { echo "1..0 # SKIP $try isn't built"; exit 0; }
command -v curl >/dev/null || { echo "1..0 # SKIP no curl"; exit 0; }
command -v openssl >/dev/null || { echo "1..0 # SKIP no openssl program"; exit 0; }
dir=$(mktemp -d)
n=0 bad=0
ok() { # ok STATUS NAME
	n=$((n + 1))
	if [ "$1" = 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; bad=1; fi
}
is() { # is GOT WANT NAME
	[ "$1" = "$2" ]; ok $? "$3"
	[ "$1" = "$2" ] || printf '#  got: %s\n# want: %s\n' "$1" "$2"
}
# The servers end when their standard input does: when this script closes 7 and 8, or dies.
mkfifo "$dir/in1" "$dir/in2" "$dir/in3"
cleanup() { exec 7>&- 8>&- 9>&-; wait; rm -rf "$dir"; }
trap cleanup EXIT

openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj '/CN=test CA' -keyout "$dir/ca.key" -out "$dir/ca.pem" 2>/dev/null
openssl req -newkey rsa:2048 -nodes -subj '/CN=localhost' -keyout "$dir/key.pem" -out "$dir/csr" 2>/dev/null
printf 'subjectAltName=DNS:localhost,IP:127.0.0.1\n' >"$dir/ext"
openssl x509 -req -in "$dir/csr" -CA "$dir/ca.pem" -CAkey "$dir/ca.key" -CAcreateserial -days 2 -extfile "$dir/ext" -out "$dir/cert.pem" 2>/dev/null

start() { # start FIFO OUT ARGS...
	local in=$1 out=$2
	shift 2
	"$try" serve "$@" <"$in" >"$out" 7>&- 8>&- 9>&- &
}
address() { # the bound address, within 5 s
	for _ in $(seq 100); do [ -s "$1" ] && { cat "$1"; return; }; sleep 0.05; done
}
start "$dir/in1" "$dir/out1" 127.0.0.1:0
plain_pid=$!
exec 7>"$dir/in1"
start "$dir/in2" "$dir/out2" 127.0.0.1:0 "$dir/cert.pem" "$dir/key.pem"
tls_pid=$!
exec 8>"$dir/in2"
at=http://$(address "$dir/out1")
tls=https://$(address "$dir/out2")
c() { curl -s --max-time 30 "$@"; }
rss() { awk '/VmHWM/ { print $2 }' "/proc/$1/status"; }

is "$(c "$at/hello")" hello "a request"
is "$(c -w '%{num_connects} ' "$at/hello" "$at/hello" "$at/nope" -o /dev/null -o /dev/null -o /dev/null)" "1 0 0 " "keep-alive"
is "$(c -d abc "$at/collect")" abc "a body"
is "$(printf abc | c -H 'Transfer-Encoding: chunked' -T - "$at/collect")" abc "a chunked body"
is "$(c -H 'Expect: 100-continue' -v -d abc "$at/collect" 2>&1 | grep -c '100 Continue')" 1 "100-continue"
is "$(c -o /dev/null -w '%{http_code}' --http1.0 "$at/hello")" 200 "HTTP/1.0"
is "$(c -I "$at/hello" | tr -d '\r' | grep -c '^Content-Length: 6$')" 1 "HEAD"

head -c 67108864 /dev/urandom >"$dir/big"
before=$(rss $plain_pid)
is "$(c -T "$dir/big" "$at/file?file=$dir/up")" 67108864 "64 MiB into a file"
cmp -s "$dir/big" "$dir/up"; ok $? "the same bytes"
is "$(c -H 'Transfer-Encoding: chunked' -T "$dir/big" "$at/file?file=$dir/up")" 67108864 "64 MiB chunked into a file"
cmp -s "$dir/big" "$dir/up"; ok $? "the same bytes"
c "$at/file?file=$dir/big" | cmp -s - "$dir/big"; ok $? "64 MiB from a file"
c "$at/via/file?file=$dir/big" | cmp -s - "$dir/big"; ok $? "64 MiB through the proxy"
is "$(c -T "$dir/big" "$at/via/file?file=$dir/up2")" 67108864 "64 MiB into a file through the proxy"
cmp -s "$dir/big" "$dir/up2"; ok $? "the same bytes"
after=$(rss $plain_pid)
if grep -qa __asan_init "$try"; then ok 0 "in constant memory # SKIP a sanitizer keeps freed memory"
else [ $((after - before)) -lt 4096 ]; ok $? "in constant memory ($before KiB before, $after KiB after)"; fi
c -r 1000-1999 "$at/file?file=$dir/big" | cmp -s - <(tail -c +1001 "$dir/big" | head -c 1000); ok $? "a range"
is "$(c -r 99999999- -o /dev/null -w '%{http_code}' "$at/file?file=$dir/big")" 416 "a range beyond the end"
c -o "$dir/part" -r 0-999999 "$at/file?file=$dir/big"
c -C - -o "$dir/part" "$at/file?file=$dir/big"
cmp -s "$dir/part" "$dir/big"; ok $? "a download taken up again"
c --etag-save "$dir/etag" -o /dev/null "$at/file?file=$dir/big"
is "$(c --etag-compare "$dir/etag" -o /dev/null -w '%{http_code}' "$at/file?file=$dir/big")" 304 "not modified"
[ "$(c "$at/file?file=/proc/self/status" | head -c 5)" = "Name:" ]; ok $? "a file of /proc"
is "$(c -F a=1 -F "f=@$dir/big;filename=\"/home/user/a b/x;y\"" "$at/form" | tr '\n' ';')" 'a - 1;f /home/user/a b/x;y 67108864;' "a form with a file"

is "$(c --cacert "$dir/ca.pem" "$tls/info")" "GET tls=1 host=${tls#https://} proto=-" "TLS"
is "$(c --cacert "$dir/ca.pem" "$tls/via/info")" "GET tls=0 host=${tls#https://} proto=https" "TLS before the proxy"
is "$(c -w '%{num_connects} ' --cacert "$dir/ca.pem" "$tls/hello" "$tls/hello" -o /dev/null -o /dev/null)" "1 0 " "keep-alive under TLS"
c --cacert "$dir/ca.pem" "$tls/file?file=$dir/big" | cmp -s - "$dir/big"; ok $? "64 MiB from a file under TLS"
is "$(c --cacert "$dir/ca.pem" -T "$dir/big" "$tls/file?file=$dir/up3")" 67108864 "64 MiB into a file under TLS"
cmp -s "$dir/big" "$dir/up3"; ok $? "the same bytes"
c --cacert "$dir/ca.pem" "$tls/via/file?file=$dir/big" | cmp -s - "$dir/big"; ok $? "64 MiB through the proxy under TLS"
if grep -qa __asan_init "$try"; then ok 0 "in constant memory # SKIP a sanitizer keeps freed memory"
else [ "$(rss $tls_pid)" -lt 24576 ]; ok $? "in constant memory ($(rss $tls_pid) KiB)"; fi
c "$tls/hello" >/dev/null; [ $? = 60 ]; ok $? "curl without our CA refuses us"
is "$(openssl s_client -connect "${tls#https://}" -alpn http/1.1 </dev/null 2>/dev/null | grep -c 'ALPN protocol: http/1.1')" 1 "ALPN"
openssl s_client -connect "${tls#https://}" -tls1_1 </dev/null >/dev/null 2>&1; [ $? != 0 ]; ok $? "no TLS 1.1"
is "$(c -o /dev/null -w '%{http_version}' --http2 --cacert "$dir/ca.pem" "$tls/hello")" 1.1 "a client that offers h2 gets 1.1"

if command -v python3 >/dev/null; then
	cat >"$dir/up.py" <<'PY'
import hashlib, os, socket, ssl, sys, threading
url, path, ca = sys.argv[1:4]
scheme, rest = url.split("://")
host, port = rest.split(":")
s = socket.create_connection((host, int(port)), 20)
if scheme == "https":
    s = ssl.create_default_context(cafile=ca).wrap_socket(s, server_hostname=host)
size = 20 << 20
data = os.urandom(1 << 20) * (size >> 20)
s.sendall(b"GET %s HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n" % path.encode() + data[:1000])
f = s.makefile("rb")
status = f.readline()
while f.readline() != b"\r\n": pass
def send():
    s.sendall(data[1000:])
t = threading.Thread(target=send)
if scheme == "http": t.start()   # OpenSSL objects aren't for two threads
got = hashlib.sha1()
if scheme == "https":
    # in steps, each echoed whole
    left = size
    at = 1000
    first = f.read(1000); got.update(first); left -= 1000
    while left:
        n = min(200000, left)
        s.sendall(data[at:at + n]); at += n
        got.update(f.read(n)); left -= n
else:
    left = size
    while left:
        b = f.read(min(left, 65536))
        if not b: break
        got.update(b); left -= len(b)
    t.join()
    s.shutdown(socket.SHUT_WR)
    if f.read() != b"": print("bytes after the end")
print(status.split()[1].decode(), got.digest() == hashlib.sha1(data).digest())
PY
	is "$(timeout 60 python3 "$dir/up.py" "$at" /upgrade "$dir/ca.pem")" "101 True" "20 MiB both ways after an upgrade"
	is "$(timeout 60 python3 "$dir/up.py" "$at" /via/upgrade "$dir/ca.pem")" "101 True" "and through the proxy, spliced"
	is "$(timeout 60 python3 "$dir/up.py" "$tls" /upgrade "$dir/ca.pem")" "101 True" "and under TLS"
	is "$(timeout 60 python3 "$dir/up.py" "$tls" /via/upgrade "$dir/ca.pem")" "101 True" "and under TLS before the proxy"
fi

port=${tls##*:}
is "$("$try" call "$tls/hello" "$dir/ca.pem")" "200 hello" "our client, by address"
is "$("$try" call "https://localhost:$port/hello" "$dir/ca.pem")" "200 hello" "our client, by name"
"$try" call "$tls/hello" >"$dir/o"; grep -q 'certificate' "$dir/o"; ok $? "our client without the CA: $(cat "$dir/o")"
start "$dir/in3" "$dir/out4" 127.0.0.1:0 "$dir/cert.pem" "$dir/key.pem" plain
mitm_pid=$!
exec 9>"$dir/in3"
proxy=$(address "$dir/out4")
is "$(c -x "http://$proxy" --cacert "$dir/ca.pem" https://localhost/info)" "GET tls=1 host=localhost proto=-" "CONNECT, and TLS ended inside it"
c -x "http://$proxy" --cacert "$dir/ca.pem" "https://localhost/file?file=$dir/big" | cmp -s - "$dir/big"; ok $? "64 MiB out of it"
is "$(c -x "http://$proxy" -o /dev/null -w '%{http_code}' http://localhost/hello)" 200 "a plain request by proxy form"
if command -v python3 >/dev/null; then
	python3 - "$proxy" "$dir/ca.pem" >"$dir/o" <<'PY'
import socket, ssl, sys
host, port = sys.argv[1].split(":")
s = socket.create_connection((host, int(port)), 10)
inc, out = ssl.MemoryBIO(), ssl.MemoryBIO()
t = ssl.create_default_context(cafile=sys.argv[2]).wrap_bio(inc, out, server_hostname="localhost")
try: t.do_handshake()
except ssl.SSLWantReadError: pass
s.sendall(b"CONNECT localhost:443 HTTP/1.1\r\nHost: localhost:443\r\n\r\n" + out.read())
got = b""
while b"\r\n\r\n" not in got: got += s.recv(65536)
head, rest = got.split(b"\r\n\r\n", 1)
inc.write(rest)
def pump(f):
    while True:
        try: r = f(); s.sendall(out.read()); return r
        except ssl.SSLWantReadError:
            s.sendall(out.read()); inc.write(s.recv(65536))
pump(t.do_handshake)
pump(lambda: t.write(b"GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n"))
print(pump(lambda: t.read(65536)).decode().split("\r\n\r\n")[-1].strip())
PY
	is "$(cat "$dir/o")" hello "a TLS hello in the same packet as CONNECT"
fi
exec 9>&-
wait $mitm_pid; ok $? "that server ends well"
printf 'subjectAltName=DNS:other.example\n' >"$dir/ext"
openssl x509 -req -in "$dir/csr" -CA "$dir/ca.pem" -CAkey "$dir/ca.key" -CAcreateserial -days 2 -extfile "$dir/ext" -out "$dir/cert.pem" 2>/dev/null
exec 8>&-
wait $tls_pid
start "$dir/in2" "$dir/out3" 127.0.0.1:0 "$dir/cert.pem" "$dir/key.pem"
exec 8>"$dir/in2"
tls=https://$(address "$dir/out3")
"$try" call "$tls/hello" "$dir/ca.pem" >"$dir/o"; grep -q 'mismatch' "$dir/o"; ok $? "our client and another name's certificate: $(cat "$dir/o")"
"$try" call "$at/hello" | grep -q '^200 hello'; ok $? "our client, plain"
"$try" call "https://${at#http://}/hello" >"$dir/o"; grep -q '^error' "$dir/o"; ok $? "TLS to a plain server is an error: $(cat "$dir/o")"
exec 7>&-
wait $plain_pid; ok $? "the server ends well"
echo "1..$n"
exit $bad
