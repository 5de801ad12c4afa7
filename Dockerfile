# The command in an image, from the wheel that `make wheel PYTHON=python3.13` leaves in dist/:
#
#     docker build -t pulsar-dissector .
#     docker run --rm -v "$PWD:/data" pulsar-dissector summary night.pcap
#
# A tap wants the host's interfaces, and root in the image with the right to capture alone:
#
#     docker run --rm --network host --cap-drop ALL --cap-add NET_RAW --user 0 \
#       -v "$PWD:/data" pulsar-dissector tap -i eth0
FROM python:3.13-slim
COPY dist/pulsar_dissector-*-cp313-*.whl /tmp/
RUN wheel=$(ls /tmp/pulsar_dissector-*.whl) \
    && pip install --no-cache-dir "$wheel[report,tls]" \
    && rm "$wheel" \
    && useradd --create-home dissector
USER dissector
WORKDIR /data
ENTRYPOINT ["dissector"]
CMD ["--help"]
