import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.ObjectReader;
import com.fasterxml.jackson.databind.ObjectWriter;
import com.fasterxml.jackson.databind.PropertyNamingStrategies;
import java.io.IOException;
import java.io.PrintWriter;
import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.LongAdder;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.errors.SerializationException;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Produced;

/**
 * The benchmark's left foreign-key join with Kafka Streams: the topics "items" and "customers" into a third one.
 *
 * <p>Arguments: bootstrap servers, target topic, threads, milliseconds between commits, directory of the state, file of
 * the samples. A sample is a line: seconds since the epoch, records taken in from both topics, records in the target.
 *
 * <p>It runs until its own group has committed every topic that the join reads, the internal ones included, to the end.
 * Kafka Streams commits an offset after all that its record led to has been written. So the target is then complete.
 */
public final class KafkaStreamsJoin {
    record Item(long customerId, String item, double amount) {}

    record Customer(String customer, double score) {}

    record Joined(long customerId, String item, double amount, String customer, Double score) {}

    private static final String APPLICATION = "benchmark";
    private static final Duration SAMPLED = Duration.ofMillis(200);
    private static final Duration STUCK = Duration.ofMinutes(5);
    private static final ObjectMapper JSON = new ObjectMapper()
            .setPropertyNamingStrategy(PropertyNamingStrategies.SNAKE_CASE)
            .disable(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES);

    private final LongAdder takenIn = new LongAdder();
    private final String target;
    private final Properties settings = new Properties();
    private long taken;
    private long written;
    private long moved = System.nanoTime();

    private KafkaStreamsJoin(String[] arguments) {
        target = arguments[1];
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, APPLICATION);
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, arguments[2]);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, arguments[3]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[4]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.AT_LEAST_ONCE);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0); // every change goes on at once
        settings.put(StreamsConfig.TOPOLOGY_OPTIMIZATION_CONFIG, StreamsConfig.OPTIMIZE); // no changelogs of the inputs
        settings.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
    }

    public static void main(String[] arguments) {
        int code = 1;
        try {
            new KafkaStreamsJoin(arguments).run(arguments[0], arguments[5]);
            code = 0;
        } catch (Exception failure) {
            failure.printStackTrace();
        } finally {
            System.exit(code); // whatever threads there still are
        }
    }

    private void run(String servers, String file) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", servers));
                PrintWriter samples = new PrintWriter(file);
                KafkaStreams streams = new KafkaStreams(topology(), settings)) {
            sample(samples);
            streams.start();
            runToEnd(streams, admin, samples);
        }
    }

    private Topology topology() {
        StreamsBuilder builder = new StreamsBuilder();
        KTable<String, Item> items = table(builder, "items", Item.class);
        KTable<String, Customer> customers = table(builder, "customers", Customer.class);
        items.leftJoin(customers, item -> Long.toString(item.customerId()), KafkaStreamsJoin::joined)
                .toStream()
                .to(target, Produced.with(Serdes.String(), json(Joined.class)));
        return builder.build(settings);
    }

    private <T> KTable<String, T> table(StreamsBuilder builder, String topic, Class<T> type) {
        Consumed<String, T> consumed = Consumed.with(Serdes.String(), json(type));
        return builder.table(topic, consumed.withTimestampExtractor((record, latest) -> {
            takenIn.increment(); // asked once for each record, when its turn comes
            return record.timestamp(); // as without an extractor
        }));
    }

    private static Joined joined(Item item, Customer customer) {
        return customer == null
                ? new Joined(item.customerId, item.item, item.amount, null, null)
                : new Joined(item.customerId, item.item, item.amount, customer.customer, customer.score);
    }

    private static <T> Serde<T> json(Class<T> type) {
        ObjectReader reader = JSON.readerFor(type);
        ObjectWriter writer = JSON.writerFor(type);
        return Serdes.serdeFrom(
                (topic, value) -> {
                    try {
                        return value == null ? null : writer.writeValueAsBytes(value);
                    } catch (IOException failure) {
                        throw new SerializationException(failure);
                    }
                },
                (topic, bytes) -> {
                    try {
                        return bytes == null ? null : reader.readValue(bytes);
                    } catch (IOException failure) {
                        throw new SerializationException(failure);
                    }
                });
    }

    private void runToEnd(KafkaStreams streams, Admin admin, PrintWriter samples) throws Exception {
        for (boolean complete = false; !complete; Thread.sleep(SAMPLED.toMillis())) {
            try {
                complete = sampled(admin, samples);
            } catch (ExecutionException failure) {
                if (!(failure.getCause() instanceof RetriableException)) {
                    throw failure; // otherwise a topic is just being made, or the broker is busy
                }
            }
            boolean stuck = System.nanoTime() - moved > STUCK.toNanos();
            if (stuck || streams.state().hasStartedOrFinishedShuttingDown()) {
                throw new IllegalStateException("Kafka Streams is " + streams.state() + ", with " + taken
                        + " records taken in and " + written + " written");
            }
        }
    }

    /** Takes a sample; returns whether the target is complete. */
    private boolean sampled(Admin admin, PrintWriter samples) throws ExecutionException, InterruptedException {
        Map<TopicPartition, Long> committed = committed(admin);
        Map<TopicPartition, Long> ends = ends(admin); // later than the commits, so none of their records is missed
        long takenNow = takenIn.sum();
        long writtenNow = sum(ends);
        if (takenNow != taken || writtenNow != written) {
            moved = System.nanoTime();
        }
        taken = takenNow;
        written = writtenNow;
        sample(samples);
        return isComplete(committed, ends);
    }

    private boolean isComplete(Map<TopicPartition, Long> committed, Map<TopicPartition, Long> ends) {
        return ends.entrySet().stream()
                .filter(end -> isRead(end.getKey().topic()))
                .allMatch(end -> end.getValue().equals(committed.getOrDefault(end.getKey(), 0L)));
    }

    private boolean isRead(String topic) {
        return !topic.equals(target) && !topic.endsWith("-changelog");
    }

    private static Map<TopicPartition, Long> committed(Admin admin) throws ExecutionException, InterruptedException {
        return admin.listConsumerGroupOffsets(APPLICATION).partitionsToOffsetAndMetadata().get().entrySet().stream()
                .collect(Collectors.toMap(Map.Entry::getKey, one -> one.getValue().offset()));
    }

    private static Map<TopicPartition, Long> ends(Admin admin) throws ExecutionException, InterruptedException {
        Map<TopicPartition, OffsetSpec> latest =
                admin.describeTopics(admin.listTopics().names().get()).allTopicNames().get().values().stream()
                        .flatMap(topic -> topic.partitions().stream()
                                .map(partition -> new TopicPartition(topic.name(), partition.partition())))
                        .collect(Collectors.toMap(partition -> partition, partition -> OffsetSpec.latest()));
        return admin.listOffsets(latest).all().get().entrySet().stream()
                .collect(Collectors.toMap(Map.Entry::getKey, end -> end.getValue().offset()));
    }

    private long sum(Map<TopicPartition, Long> ends) {
        return ends.entrySet().stream()
                .filter(end -> end.getKey().topic().equals(target))
                .mapToLong(Map.Entry::getValue)
                .sum();
    }

    private void sample(PrintWriter samples) {
        samples.println(System.currentTimeMillis() / 1e3 + " " + taken + " " + written);
        samples.flush();
    }
}
